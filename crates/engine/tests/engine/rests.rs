//! The waiting time of instances is measured: with full outputs, or without work.

use std::time::Duration;

use ardea_core::{Dag, Edge, Inbox, Ordinal, Outbox, Processor, Result};
use ardea_engine::{JobConfig, JobHandle};

use crate::processors::{endless, node, relay, silence, until, vertex};

struct Holds;
impl Processor for Holds {
    fn process(&mut self, _: Ordinal, _: &mut Inbox, _: &mut Outbox) -> Result<()> {
        Ok(())
    }
}

/// Returns the blocked and idle time of a vertex's only instance, and the fill level of its fullest
/// queue.
fn rests(job: &JobHandle, vertex: &str) -> (Duration, Duration, u32) {
    let reports = job.metrics();
    let report = reports.iter().find(|report| &*report.vertex == vertex);
    let metrics = report.unwrap().metrics;
    (
        metrics.blocked_for,
        metrics.idle_for,
        metrics.queue_permille,
    )
}

#[test]
fn time_with_full_outputs_and_time_with_nothing_to_do_are_told_apart() {
    let mut dag = Dag::new();
    let source = dag.vertex(endless("source", 1));
    let step = dag.vertex(relay("step", 1).isolation(ardea_core::Isolation::Thread));
    let holds = dag.vertex(vertex("holds", 1, |_| Holds).isolation(ardea_core::Isolation::Thread));
    dag.edge(Edge::between(source, step));
    dag.edge(Edge::between(step, holds));
    let silent = dag.vertex(silence("silent", 1));
    let waits = dag.vertex(relay("waits", 2));
    dag.edge(Edge::between(silent, waits));
    let node = node(1);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    until("the sources are held back", || {
        rests(&job, "source").0 > Duration::ZERO && rests(&job, "step").0 > Duration::ZERO
    });
    until("queues are full", || rests(&job, "step").2 == 1_000);
    until("some have nothing to do", || {
        rests(&job, "waits").1 > Duration::ZERO
    });
    assert_eq!(rests(&job, "waits").0, Duration::ZERO);
    // A rest counts while it lasts.
    let before = rests(&job, "step").0;
    until("it goes on", || rests(&job, "step").0 > before);
    job.cancel();
}
