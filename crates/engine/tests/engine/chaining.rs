//! Chaining: processors joined by forward edges share a tasklet, without a visible difference
//! except the speed.

use std::time::Duration;

use ardea_core::{Dag, Edge, Isolation, Ordinal, Routing, Timestamp};
use ardea_engine::{ExecutionPlan, JobConfig, Node, NodeConfig};

use crate::processors::{
    Journal, Saw, completes, config, endless, node, numbers, over, relay, silence, source, until,
    watermark,
};

fn chain(journal: &Journal, instances: u32) -> Dag {
    let mut dag = Dag::new();
    let source = dag.vertex(numbers("source", instances, 1_000));
    let first = dag.vertex(relay("first", instances));
    let second = dag.vertex(relay("second", instances));
    let sink = dag.vertex(journal.vertex("sink", instances));
    for (from, to) in [(source, first), (first, second), (second, sink)] {
        dag.edge(Edge::between(from, to).routing(Routing::Forward));
    }
    dag
}

fn plan(dag: &Dag, fuse: bool) -> ExecutionPlan {
    ExecutionPlan::of(dag, 2.try_into().unwrap(), fuse).unwrap()
}

fn unfused(threads: u32) -> Node {
    Node::start(NodeConfig {
        fuse: false,
        ..config(threads)
    })
    .unwrap()
}

#[test]
fn a_chain_of_forward_edges_is_one_tasklet_an_instance() {
    let dag = chain(&Journal::default(), 3);
    let fused = plan(&dag, true);
    assert_eq!(fused.tasklets.len(), 1);
    assert_eq!(fused.tasklets[0].parallelism, 3);
    assert_eq!(
        fused.to_string(),
        "3 × tasklet: source → first → second → sink\n"
    );
    assert_eq!(plan(&dag, false).tasklets.len(), 4);
}

#[test]
fn forks_joins_threads_and_exchanges_end_a_chain() {
    let mut dag = Dag::new();
    let source = dag.vertex(numbers("source", 1, 10).isolation(Isolation::Thread));
    let fork = dag.vertex(relay("fork", 1));
    let left = dag.vertex(relay("left", 1));
    let right = dag.vertex(relay("right", 2));
    let join = dag.vertex(relay("join", 1));
    let sink = dag.vertex(relay("sink", 1));
    dag.edge(Edge::between(source, fork));
    dag.edge(Edge::between(fork, left));
    dag.edge(Edge::from_ordinals((fork, Ordinal(1)), (right, Ordinal(0))));
    dag.edge(Edge::between(left, join));
    dag.edge(Edge::from_ordinals((right, Ordinal(0)), (join, Ordinal(1))));
    dag.edge(Edge::between(join, sink));
    let text = plan(&dag, true).to_string();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "1 × tasklet: fork",
            "1 × tasklet: join → sink",
            "1 × tasklet: left",
            "1 × thread: source",
            "2 × tasklet: right",
        ]
    );
}

#[test]
fn a_chain_and_its_parts_see_the_same() {
    for instances in [1, 3] {
        let (one, many) = (Journal::default(), Journal::default());
        let fused = completes(&node(2), &chain(&one, instances));
        let parts = completes(&unfused(2), &chain(&many, instances));
        assert_eq!(fused.plan().tasklets.len(), 1);
        assert_eq!(parts.plan().tasklets.len(), 4);
        assert_eq!(one.records(), (0..1_000).collect::<Vec<_>>());
        for instance in 0..instances {
            assert_eq!(one.of(instance), many.of(instance));
        }
        for job in [fused, parts] {
            for vertex in ["first", "second", "sink"] {
                assert_eq!(job.sum(vertex, |m| m.records_in), 1_000, "{vertex}");
            }
            assert_eq!(job.sum("source", |m| m.records_out), 1_000);
        }
    }
}

#[test]
fn each_stage_of_a_chain_has_a_share_of_its_time_and_all_shares_are_the_whole() {
    let mut dag = Dag::new();
    let source = dag.vertex(endless("source", 1));
    let first = dag.vertex(relay("first", 1));
    let second = dag.vertex(relay("second", 1));
    for (from, to) in [(source, first), (first, second)] {
        dag.edge(Edge::between(from, to).routing(Routing::Forward));
    }
    let node = node(1);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    assert_eq!(job.plan().tasklets.len(), 1);
    until("each has worked", || {
        let reports = job.metrics();
        reports.iter().all(|one| !one.metrics.busy.is_zero())
    });
    job.cancel();
    over(&job);
    let reports = job.metrics();
    let whole: Duration = reports.iter().map(|one| one.metrics.busy).sum();
    for report in reports {
        let metrics = report.metrics;
        assert_eq!(metrics.busy + metrics.chain, whole, "{}", report.vertex);
        assert!(metrics.busy_cpu <= metrics.busy);
    }
}

#[test]
fn a_chain_rests_as_a_whole() {
    let mut dag = Dag::new();
    let source = dag.vertex(silence("source", 1));
    let step = dag.vertex(relay("step", 1));
    dag.edge(Edge::between(source, step).routing(Routing::Forward));
    let node = node(1);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    until("both are idle", || {
        let reports = job.metrics();
        reports.iter().all(|one| !one.metrics.idle_for.is_zero())
    });
    job.cancel();
    over(&job);
}

#[test]
fn a_watermark_that_does_not_rise_is_told_to_nobody() {
    for node in [node(1), unfused(1)] {
        let journal = Journal::default();
        let mut dag = Dag::new();
        let marks = source("source", 1, |_| {
            let mut marks = [5, 3, 5, 9, i64::MAX].into_iter();
            move |outbox: &mut ardea_core::Outbox, _: &ardea_core::InstanceContext| {
                match marks.next() {
                    Some(mark) => outbox.marker(watermark(mark)),
                    None => return Ok(ardea_core::Progress::DONE),
                }
                Ok(ardea_core::Progress::MADE)
            }
        });
        let source = dag.vertex(marks);
        let sink = dag.vertex(journal.vertex("sink", 1));
        dag.edge(Edge::between(source, sink).routing(Routing::Forward));
        completes(&node, &dag);
        assert_eq!(
            journal.of(0),
            [
                Saw::Watermark(Timestamp::from_micros(5)),
                Saw::Watermark(Timestamp::from_micros(9)),
                Saw::Watermark(Timestamp::MAX),
                Saw::EdgeDone(0),
                Saw::Complete,
                Saw::Closed,
            ]
        );
    }
}
