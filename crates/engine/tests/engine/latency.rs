//! Latency is measured by markers that sources emit.

use std::time::Instant;

use ardea_core::{Dag, Edge, LatencySnapshot, Routing};
use ardea_engine::{JobConfig, JobHandle};

use crate::processors::{endless, node, relay, silence, until};

fn latency(job: &JobHandle, vertex: &str, instance: u32) -> LatencySnapshot {
    let reports = job.metrics();
    let mut reports = reports.into_iter();
    let report = reports.find(|it| &*it.vertex == vertex && it.instance == instance);
    report.unwrap().latency
}

#[test]
fn marks_reach_every_instance_through_chains_and_queues() {
    let mut dag = Dag::new();
    let source = dag.vertex(endless("source", 1));
    let chained = dag.vertex(relay("chained", 1));
    let keyed = dag.vertex(relay("keyed", 2));
    let sink = dag.vertex(relay("sink", 2));
    dag.edge(Edge::between(source, chained));
    dag.edge(Edge::between(chained, keyed).routing(Routing::keyed(|n: &u64| *n)));
    dag.edge(Edge::between(keyed, sink));
    let node = node(2);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    for (vertex, instance) in [
        ("chained", 0),
        ("keyed", 0),
        ("keyed", 1),
        ("sink", 0),
        ("sink", 1),
    ] {
        until("marks", || latency(&job, vertex, instance).count() > 3);
        assert!(latency(&job, vertex, instance).quantile(0.5).is_some());
    }
    assert_eq!(latency(&job, "source", 0).count(), 0);
    job.cancel();
}

#[test]
fn a_silent_source_sends_marks_as_well() {
    let mut dag = Dag::new();
    let source = dag.vertex(silence("source", 1));
    let sink = dag.vertex(relay("sink", 1));
    dag.edge(Edge::between(source, sink));
    let node = node(1);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    until("marks", || latency(&job, "sink", 0).count() > 1);
    job.cancel();
}

#[test]
fn marks_of_many_do_not_multiply_from_step_to_step() {
    const WIDTH: u32 = 6;
    let start = Instant::now();
    let mut dag = Dag::new();
    let mut before = dag.vertex(endless("source", WIDTH));
    for name in ["one", "two", "three"] {
        let next = dag.vertex(relay(name, WIDTH));
        dag.edge(Edge::between(before, next).routing(Routing::keyed(|n: &u64| *n)));
        before = next;
    }
    let node = node(2);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    until("marks", || latency(&job, "three", 0).count() > 20);
    let count = latency(&job, "three", 0).count();
    // Each upstream instance passes on at most one marker per 50 ms.
    let most = u64::from(WIDTH) * (start.elapsed().as_millis() as u64 / 50 + 2);
    assert!(count <= most, "{count} came, of {most} that may");
    job.cancel();
}
