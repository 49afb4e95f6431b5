//! A job over several processes behaves as in one.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Dag, Edge, ErrorCode, Routing, Timestamp, VertexId};
use ardea_engine::{JobConfig, Layout, StartMode, chains};

use crate::processors::{Journal, Saw, numbers, relay, silence, until};
use crate::sites::{AnyWhere, Sites, place, placement};

const RECORDS: u64 = 3_000;
/// Long enough to never end within a test.
const ENDLESS: Duration = Duration::from_secs(3_600);

fn edge(from: VertexId, to: VertexId, routing: Routing) -> Edge {
    Edge::between(from, to)
        .routing(routing)
        .capacity(2.try_into().unwrap())
        .codec(Arc::new(AnyWhere))
}

fn every() -> Vec<u64> {
    (0..RECORDS).collect()
}

/// A source with two outputs, a step and a sink, so that no vertices are chained.
fn graph(routing: &Routing, counts: [u32; 3]) -> (Dag, Journal, Journal) {
    let (middle, end) = (Journal::default(), Journal::default());
    let mut dag = Dag::new();
    let source = dag.vertex(numbers("source", counts[0], RECORDS));
    let step = dag.vertex(middle.vertex("step", counts[1]));
    let sink = dag.vertex(end.vertex("sink", counts[2]));
    dag.edge(edge(source, step, routing.clone()));
    dag.edge(edge(step, sink, routing.clone()));
    (dag, middle, end)
}

#[test]
fn every_routing_gives_the_same_over_one_two_and_three_sites() {
    check_routings(|sites| Sites::new(sites, 1));
}

#[test]
fn every_routing_gives_the_same_in_micro_batches_of_any_length() {
    for epoch in [Duration::from_micros(100), ENDLESS] {
        check_routings(|sites| Sites::in_batches(sites, 1, epoch));
    }
}

#[test]
fn a_step_reads_its_producers_in_turn_over_sites() {
    for _ in 0..10 {
        let (dag, _, end) = graph(&Routing::AllToOne, [3, 1, 1]);
        let mut all = Sites::in_batches(3, 2, ENDLESS);
        all.deploy(&dag, &[vec![2, 1, 0], vec![1], vec![0]]);
        all.complete();
        // The producer at the step's site precedes those of site 0 and 2.
        let expected = [1, 2, 0]
            .into_iter()
            .flat_map(|first| (first..RECORDS).step_by(3));
        assert_eq!(end.records_of(0), expected.collect::<Vec<u64>>());
    }
}

fn check_routings(start: impl Fn(u32) -> Sites) {
    for sites in 1..=3 {
        for (routing, counts) in [
            (Routing::Forward, [3, 3, 3]),
            (Routing::RoundRobin, [2, 4, 3]),
            (Routing::LocalOrRoundRobin, [2, 3, 4]),
            (Routing::keyed(|n: &u64| n % 97), [3, 4, 2]),
            (Routing::custom(|n: &u64| *n as u32), [2, 3, 5]),
            (Routing::broadcast::<u64>(), [1, 2, 3]),
            (Routing::AllToOne, [3, 2, 2]),
        ] {
            let (dag, middle, end) = graph(&routing, counts);
            let mut next = 0;
            let places = place(&dag, &counts, || {
                next += 1;
                next % sites
            });
            let mut all = start(sites);
            all.deploy(&dag, &places);
            all.complete();
            let copies = |journal: &Journal, times: u32| {
                let mut expected = every().repeat(times as usize);
                expected.sort_unstable();
                assert_eq!(journal.records(), expected, "{routing:?} over {sites}");
            };
            let is_broadcast = matches!(routing, Routing::Broadcast(_));
            let times = |count| if is_broadcast { count } else { 1 };
            copies(&middle, times(counts[1]));
            copies(&end, times(counts[1]) * times(counts[2]));
            for (journal, count) in [(middle, counts[1]), (end, counts[2])] {
                for instance in 0..count {
                    check_end(&journal.of(instance));
                }
            }
        }
    }
}

/// Checks that the watermark rises to its end, and that one end of stream follows.
fn check_end(saw: &[Saw]) {
    let mut time = Timestamp::MIN;
    for event in saw {
        match event {
            Saw::Watermark(next) => {
                assert!(*next > time);
                time = *next;
            }
            Saw::Record { value, .. } => {
                assert!(Timestamp::from_micros(*value as i64) >= time);
            }
            _ => {}
        }
    }
    assert_eq!(time, Timestamp::MAX);
    assert_eq!(saw[saw.len() - 2..], [Saw::Complete, Saw::Closed]);
    let ends = saw.iter().filter(|event| matches!(event, Saw::EdgeDone(_)));
    assert_eq!(ends.count(), 1);
}

#[test]
fn records_stay_where_they_are_if_there_is_a_consumer_and_else_go_round_all() {
    let (dag, middle, end) = graph(&Routing::LocalOrRoundRobin, [1, 3, 2]);
    let mut all = Sites::new(3, 1);
    all.deploy(&dag, &[vec![0], vec![0, 1, 0], vec![1, 2]]);
    all.complete();
    let came = |journal: &Journal, instance| journal.records_of(instance).len();
    assert_eq!(came(&middle, 1), 0);
    assert!(came(&middle, 0) > 0 && came(&middle, 2) > 0);
    assert!(came(&end, 0) > 0 && came(&end, 1) > 0);
    assert_eq!([&middle, &end].map(Journal::records), [every(), every()]);
}

#[test]
fn records_of_one_producer_and_key_stay_in_order_over_sites() {
    let (dag, _, end) = graph(&Routing::keyed(|n: &u64| n % 5), [2, 1, 3]);
    let mut all = Sites::new(3, 2);
    all.deploy(&dag, &[vec![0, 1], vec![2], vec![0, 1, 2]]);
    all.complete();
    for instance in 0..3 {
        let mut last = [None; 10];
        for value in end.records_of(instance) {
            let line = &mut last[value as usize % 10];
            assert!(*line < Some(value), "{value} after {line:?}");
            *line = Some(value);
        }
    }
}

#[test]
fn a_step_that_is_in_no_hurry_holds_a_source_elsewhere_back() {
    let mut dag = Dag::new();
    let source = dag.vertex(crate::processors::endless("source", 1));
    let sink = dag.vertex(crate::processors::vertex("sink", 1, |_| Holds));
    dag.edge(edge(source, sink, Routing::RoundRobin));
    let mut all = Sites::new(2, 1);
    all.deploy(&dag, &[vec![0], vec![1]]);
    let source = all.parts[0].handle().clone();
    until("the source is held back", || {
        source.sum("source", |m| m.blocked) > 0
    });
    let out = source.sum("source", |m| m.records_out);
    assert!(out < 16 * 20, "{out} records are on their way");
}

struct Holds;
impl ardea_core::Processor for Holds {
    fn process(
        &mut self,
        _: ardea_core::Ordinal,
        _: &mut ardea_core::Inbox,
        _: &mut ardea_core::Outbox,
    ) -> ardea_core::Result<()> {
        Ok(())
    }
}

#[test]
fn an_edge_without_a_codec_may_not_leave_its_process() {
    let mut dag = Dag::new();
    let source = dag.vertex(silence("source", 1));
    let sink = dag.vertex(relay("sink", 2));
    dag.edge(Edge::between(source, sink));
    let all = Sites::new(1, 1);
    let deploy = |places: &[Vec<u32>]| {
        all.nodes[0].deploy(
            &dag,
            JobConfig::default(),
            placement(0, places),
            all.crossings(0),
            StartMode::Running,
        )
    };
    let error = deploy(&[vec![0], vec![0, 1]]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    let text = error.to_string();
    assert!(
        text.contains("\"source\" to \"sink\"") && text.contains("codec"),
        "{text}"
    );
    assert_eq!(all.nodes[0].tasklets(), 0);
    drop(deploy(&[vec![0], vec![0, 0]]).unwrap());
}

#[test]
fn what_runs_as_one_tasklet_may_not_be_placed_apart() {
    let mut dag = Dag::new();
    let ids = ["a", "b", "c"].map(|name| match name {
        "a" => dag.vertex(silence(name, 2)),
        _ => dag.vertex(relay(name, 2)),
    });
    dag.edge(edge(ids[0], ids[1], Routing::Forward));
    dag.edge(edge(ids[1], ids[2], Routing::RoundRobin));
    assert_eq!(chains(&dag).unwrap(), [vec![ids[0], ids[1]], vec![ids[2]]]);
    let all = Sites::new(1, 1);
    let deploy = |layout: Layout| {
        let crossings = all.crossings(0);
        let config = JobConfig::default();
        all.nodes[0].deploy(&dag, config, layout, crossings, StartMode::Running)
    };
    let apart = placement(0, &[vec![0, 1], vec![0, 0], vec![0, 0]]);
    let error = deploy(apart.into()).unwrap_err().to_string();
    assert!(error.contains("instances 1 of \"a\", \"b\""), "{error}");
    let together = placement(0, &[vec![0, 1], vec![0, 1], vec![0, 0]]);
    let half = Layout::new([(ids[0], 0)], together.clone());
    assert!(
        deploy(half)
            .unwrap_err()
            .to_string()
            .contains("placed apart")
    );
    drop(deploy(together.into()).unwrap());
}
