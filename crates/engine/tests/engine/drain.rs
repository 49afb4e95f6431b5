//! Draining ends the sources and lets everything that they have said come out.

use std::time::Duration;

use ardea_core::{Dag, Edge, InstanceContext, Isolation, Outbox, Progress, Routing, Timestamp};
use ardea_engine::{JobConfig, JobStatus, Node, NodeConfig};

use crate::processors::{
    Journal, Saw, config, emit, node, over, relay, room, silence, source, until,
};

#[test]
fn what_is_in_flight_comes_out_and_the_job_has_drained() {
    for isolation in [Isolation::Tasklet, Isolation::Thread] {
        let journal = Journal::default();
        let mut dag = Dag::new();
        let counting = source("source", 2, |_| {
            let mut next = 0;
            move |outbox: &mut Outbox, _: &InstanceContext| {
                for _ in 0..room(outbox)? {
                    emit(outbox, next, Timestamp::MIN)?;
                    next += 1;
                }
                Ok(Progress::MADE)
            }
        });
        let source = dag.vertex(counting.isolation(isolation));
        let middle = dag.vertex(relay("middle", 3));
        let sink = dag.vertex(journal.vertex("sink", 2));
        dag.edge(Edge::between(source, middle));
        dag.edge(Edge::between(middle, sink).routing(Routing::keyed(|n: &u64| *n)));
        let node = node(2);
        let job = node.submit(&dag, JobConfig::default()).unwrap();
        until("records flow", || journal.len() > 1_000);
        job.drain();
        let status = over(&job);
        assert!(matches!(status, JobStatus::Drained), "{status}");
        let out = job.sum("source", |m| m.records_out);
        assert_eq!(journal.records().len() as u64, out);
        let ends = journal.count(|saw| *saw == Saw::Watermark(Timestamp::MAX));
        assert_eq!(ends, 2, "every instance sees the end of time");
    }
}

#[test]
fn a_silent_source_is_drained_at_once() {
    let node = Node::start(NodeConfig {
        idle_poll: Duration::from_secs(3_600),
        ..config(1)
    })
    .unwrap();
    let mut dag = Dag::new();
    dag.vertex(silence("source", 2));
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    job.drain();
    assert!(matches!(over(&job), JobStatus::Drained));
}

#[test]
fn a_drained_job_can_still_be_cancelled() {
    struct Endless;
    impl ardea_core::Processor for Endless {
        fn process(
            &mut self,
            _: ardea_core::Ordinal,
            inbox: &mut ardea_core::Inbox,
            _: &mut Outbox,
        ) -> ardea_core::Result<()> {
            inbox.rows::<u64>().map(|rows| rows.clear())
        }
        fn complete(&mut self, _: &mut Outbox) -> ardea_core::Result<Progress> {
            Ok(Progress::MADE)
        }
    }
    let node = node(1);
    let mut dag = Dag::new();
    let source = dag.vertex(silence("source", 1));
    let sink = dag.vertex(crate::processors::vertex("sink", 1, |_| Endless));
    dag.edge(Edge::between(source, sink));
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    job.drain();
    job.cancel();
    assert!(matches!(over(&job), JobStatus::Cancelled));
}
