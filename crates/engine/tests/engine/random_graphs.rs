//! Random graphs conserve their records and deliver every end of stream, however small the chunks
//! and queues.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Dag, Edge, Isolation, Ordinal, Priority, Routing, Timestamp, VertexId};
use ardea_engine::{ExecutionMode, MicroBatchConfig, Node, NodeConfig};
use proptest::prelude::*;

use crate::processors::{Journal, Saw, completes, config, numbers_from};
use crate::sites::{AnyWhere, Sites, place};

/// A vertex of a random graph; its inputs come from earlier ones.
#[derive(Clone, Debug)]
struct Step {
    instances: u32,
    on_thread: bool,
    /// For each input: the earlier vertex (modulo their number), the routing, the queue capacity,
    /// the urgency.
    inputs: Vec<(usize, u8, usize, bool)>,
}

#[derive(Clone, Debug)]
struct Graph {
    steps: Vec<Step>,
    /// The number of processes of the job, and the random choices of the placement.
    sites: u32,
    places: Vec<u32>,
    records: u64,
    chunk: usize,
    threads: u32,
    fuse: bool,
    /// The length of micro-batches in microseconds, and their records; `None` if records flow at
    /// once.
    batches: Option<(u64, Option<u64>)>,
}

fn step() -> impl Strategy<Value = Step> {
    let input = (0usize..8, 0u8..6, 1usize..=3, prop::bool::weighted(0.2));
    (
        1u32..=3,
        prop::bool::weighted(0.1),
        prop::collection::vec(input, 0..=2),
    )
        .prop_map(|(instances, on_thread, inputs)| Step {
            instances,
            on_thread,
            inputs,
        })
}

fn graph() -> impl Strategy<Value = Graph> {
    (
        prop::collection::vec(step(), 1..=6),
        (1u32..=3, prop::collection::vec(0u32..3, 1..=9)),
        0u64..60,
        1usize..=7,
        1u32..=3,
        prop::bool::ANY,
        prop::option::of((100u64..2_000, prop::option::of(1u64..30))),
    )
        .prop_map(
            |(steps, (sites, places), records, chunk, threads, fuse, batches)| Graph {
                steps,
                sites,
                places,
                records,
                chunk,
                threads,
                fuse,
                batches,
            },
        )
}

impl Graph {
    fn config(&self) -> NodeConfig {
        let batches = self.batches.map(|(micros, records)| MicroBatchConfig {
            epoch: Duration::from_micros(micros),
            records: records.and_then(NonZeroU64::new),
            ..MicroBatchConfig::default()
        });
        let is_micro_batch = batches.is_some();
        NodeConfig {
            chunk_records: self.chunk.try_into().unwrap(),
            fuse: self.fuse,
            mode: match is_micro_batch {
                true => ExecutionMode::MicroBatch,
                false => ExecutionMode::Continuous,
            },
            micro_batch: batches.unwrap_or_default(),
            ..config(self.threads)
        }
    }
}

/// Returns the graph, and for each vertex its id, its journal and the expected records, sorted.
fn build(graph: &Graph) -> (Dag, Vec<(VertexId, Journal, Vec<u64>)>) {
    let mut dag = Dag::new();
    let mut made: Vec<(VertexId, Journal, Vec<u64>)> = Vec::new();
    let mut outputs = vec![0u16; graph.steps.len()];
    for (index, step) in graph.steps.iter().enumerate() {
        let journal = Journal::default();
        let first = index as u64 * 1_000;
        let is_source = index == 0 || step.inputs.is_empty();
        let name = format!("v{index}");
        let vertex = if is_source {
            numbers_from(&name, step.instances, first, first + graph.records)
        } else {
            journal.vertex(&name, step.instances)
        };
        let isolation = match step.on_thread {
            true => Isolation::Thread,
            false => Isolation::Tasklet,
        };
        let id = dag.vertex(vertex.isolation(isolation));
        let mut gets = Vec::new();
        if is_source {
            made.push((id, journal, (first..first + graph.records).collect()));
            continue;
        }
        for (input, &(from, routing, queue, urgent)) in step.inputs.iter().enumerate() {
            let from = from % index;
            let (routing, copies) = match routing {
                0 if graph.steps[from].instances == step.instances => (Routing::Forward, 1),
                1 => (Routing::keyed(|n: &u64| n % 11), 1),
                2 => (Routing::broadcast::<u64>(), step.instances),
                3 => (Routing::AllToOne, 1),
                4 => (Routing::custom(|n: &u64| *n as u32 / 3), 1),
                _ => (Routing::RoundRobin, 1),
            };
            let output = Ordinal(outputs[from]);
            outputs[from] += 1;
            // Only sources may be urgent: a fork with one branch waiting for the other would fill
            // up and stop.
            let is_source = from == 0 || graph.steps[from].inputs.is_empty();
            let priority = match urgent && is_source && output == Ordinal::FIRST {
                true => Priority::FIRST,
                false => Priority::NORMAL,
            };
            dag.edge(
                Edge::from_ordinals((made[from].0, output), (id, Ordinal(input as u16)))
                    .routing(routing)
                    .capacity(queue.try_into().unwrap())
                    .codec(Arc::new(AnyWhere))
                    .priority(priority),
            );
            for _ in 0..copies {
                gets.extend_from_slice(&made[from].2);
            }
        }
        gets.sort_unstable();
        made.push((id, journal, gets));
    }
    (dag, made)
}

/// Returns true if an urgent input's source also feeds another input: then the graph may deadlock.
fn may_stop(dag: &Dag) -> bool {
    dag.edges().iter().any(|edge| {
        edge.wanted_priority() == Priority::FIRST && dag.outputs(edge.source().0).len() > 1
    })
}

/// Checks the events of each instance of each vertex.
fn check(graph: &Graph, expected: &[(VertexId, Journal, Vec<u64>)]) {
    for (index, (_, journal, gets)) in expected.iter().enumerate() {
        let step = &graph.steps[index];
        if index == 0 || step.inputs.is_empty() {
            continue;
        }
        assert_eq!(&journal.records(), gets, "vertex {index}");
        for instance in 0..step.instances {
            let saw = journal.of(instance);
            let ends = saw.iter().filter(|s| matches!(s, Saw::EdgeDone(_)));
            assert_eq!(ends.count(), step.inputs.len());
            assert_eq!(saw[saw.len() - 2..], [Saw::Complete, Saw::Closed]);
            let marks: Vec<Timestamp> = saw
                .iter()
                .filter_map(|s| match s {
                    Saw::Watermark(time) => Some(*time),
                    _ => None,
                })
                .collect();
            assert!(marks.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(marks.last(), Some(&Timestamp::MAX));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_record_arrives_as_often_as_it_must_and_everyone_sees_the_end(graph in graph()) {
        let (dag, expected) = build(&graph);
        prop_assume!(!may_stop(&dag));
        let node = Node::start(graph.config()).unwrap();
        let job = completes(&node, &dag);
        prop_assert_eq!(node.tasklets(), 0);
        for (index, (id, ..)) in expected.iter().enumerate() {
            if index == 0 || graph.steps[index].inputs.is_empty() {
                let out = job.sum(&format!("v{index}"), |m| m.records_out);
                prop_assert_eq!(out, graph.records * dag.outputs(*id).len() as u64);
            }
        }
        check(&graph, &expected);
    }

    #[test]
    fn spread_over_processes_it_is_the_same(graph in graph()) {
        let (dag, expected) = build(&graph);
        prop_assume!(!may_stop(&dag));
        let graph = Graph { batches: None, ..graph };
        let mut sites = Sites::with(graph.sites, &graph.config());
        let counts: Vec<u32> = graph.steps.iter().map(|step| step.instances).collect();
        let mut choices = graph.places.iter().cycle();
        let places = place(&dag, &counts, || choices.next().unwrap() % graph.sites);
        sites.deploy(&dag, &places);
        sites.complete();
        check(&graph, &expected);
    }

    #[test]
    fn micro_batches_that_end_alike_give_the_same_events_on_any_schedule(
        graph in graph(),
        records in 1u64..30,
        schedules in prop::collection::vec((1u32..=3, 1u64..200), 2),
    ) {
        // An hour never ends, so the number of records ends all micro-batches. The first one lasts
        // until all urgent inputs have ended, at a time that depends on the schedule.
        let batches = Some((3_600_000_000, Some(records)));
        let steps = graph.steps.into_iter().map(|step| Step {
            inputs: step.inputs.into_iter().map(|(a, b, c, _)| (a, b, c, false)).collect(),
            ..step
        });
        let graph = Graph { batches, steps: steps.collect(), ..graph };
        let mut runs = schedules.iter().map(|(threads, slice)| {
            let (dag, expected) = build(&graph);
            let node = Node::start(NodeConfig {
                threads: (*threads).try_into().unwrap(),
                slice: Duration::from_micros(*slice),
                ..graph.config()
            }).unwrap();
            completes(&node, &dag);
            check(&graph, &expected);
            let journals = graph.steps.iter().zip(expected);
            let events = journals.flat_map(|(step, (_, journal, _))| {
                (0..step.instances).map(move |instance| journal.of(instance)).collect::<Vec<_>>()
            });
            events.collect::<Vec<_>>()
        });
        prop_assert_eq!(runs.next(), runs.next());
    }
}
