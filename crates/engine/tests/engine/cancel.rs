//! Cancelling stops a job in any state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ardea_core::{Dag, Edge, ErrorCode, InstanceContext, Isolation, Outbox, Progress, Routing};
use ardea_engine::{JobConfig, JobStatus, Node, NodeConfig};

use crate::processors::{
    Journal, Saw, completes, config, endless, node, numbers, over, silence, source, until,
};

/// A node that polls idle sources once an hour, so that only wake-ups reach them.
fn sleepy() -> Node {
    Node::start(NodeConfig {
        idle_poll: Duration::from_secs(3_600),
        ..config(2)
    })
    .unwrap()
}

#[test]
fn an_idle_job_is_cancelled() {
    let node = sleepy();
    let journal = Journal::default();
    let mut dag = Dag::new();
    let source = dag.vertex(silence("source", 2));
    let sink = dag.vertex(journal.vertex("sink", 3));
    dag.edge(Edge::between(source, sink));
    let job = node.submit(&dag, JobConfig::named("idle")).unwrap();
    job.cancel();
    assert!(matches!(over(&job), JobStatus::Cancelled));
    let error = job.join().unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    assert!(error.to_string().contains("idle"), "{error}");
    assert_eq!(journal.count(|saw| *saw == Saw::Closed), 3);
    assert_eq!(node.tasklets(), 0);
}

#[test]
fn a_job_that_is_stuck_on_full_queues_is_cancelled() {
    struct Stuck;
    impl ardea_core::Processor for Stuck {
        fn process(
            &mut self,
            _: ardea_core::Ordinal,
            _: &mut ardea_core::Inbox,
            _: &mut Outbox,
        ) -> ardea_core::Result<()> {
            Ok(())
        }
    }
    let node = sleepy();
    let mut dag = Dag::new();
    let source = dag.vertex(endless("source", 2));
    let sink = dag.vertex(crate::processors::vertex("sink", 2, |_| Stuck));
    dag.edge(Edge::between(source, sink).routing(Routing::keyed(|n: &u64| *n)));
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    until("the source is stuck", || {
        job.sum("source", |m| m.blocked) > 1
    });
    job.cancel();
    assert!(matches!(over(&job), JobStatus::Cancelled));
}

#[test]
fn a_busy_job_is_cancelled() {
    let node = node(1);
    let mut dag = Dag::new();
    dag.vertex(endless("source", 3));
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    until("it is busy", || {
        job.metrics().iter().all(|r| !r.metrics.busy.is_zero())
    });
    job.cancel();
    assert!(matches!(over(&job), JobStatus::Cancelled));
}

#[test]
fn a_source_that_blocks_is_cancelled_when_it_looks() {
    let node = node(1);
    let blocking = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&blocking);
    let mut dag = Dag::new();
    dag.vertex(
        source("source", 1, move |_| {
            let told = Arc::clone(&told);
            move |_: &mut Outbox, context: &InstanceContext| {
                told.store(true, Ordering::SeqCst);
                // Like a blocking read: until data arrives, or up to a second.
                let start = std::time::Instant::now();
                while !context.signals.is_cancelled() && start.elapsed() < Duration::from_secs(1) {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
                Ok(Progress::NONE)
            }
        })
        .isolation(Isolation::Thread),
    );
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    until("it blocks", || blocking.load(Ordering::SeqCst));
    job.cancel();
    assert!(matches!(over(&job), JobStatus::Cancelled));
}

#[test]
fn a_job_that_is_over_can_not_be_cancelled() {
    let mut dag = Dag::new();
    dag.vertex(numbers("source", 1, 100));
    let job = completes(&node(1), &dag);
    job.cancel();
    assert!(matches!(job.status(), JobStatus::Completed));
    assert!(job.join().is_ok());
}

#[test]
fn a_node_that_is_dropped_cancels_its_jobs_even_those_that_have_hardly_begun() {
    for _ in 0..50 {
        let node = node(2);
        let mut dag = Dag::new();
        let source = dag.vertex(endless("source", 2));
        let sink = dag.vertex(crate::processors::relay("sink", 2).isolation(Isolation::Thread));
        dag.edge(Edge::between(source, sink));
        let job = node.submit(&dag, JobConfig::default()).unwrap();
        drop(node);
        assert!(matches!(job.status(), JobStatus::Cancelled));
    }
}

#[test]
fn a_source_that_ends_because_it_was_cancelled_does_not_complete_the_job() {
    /// A source that is cancelled within a call and then returns done, like sources that read the
    /// signals.
    struct Obedient(Option<InstanceContext>);
    impl ardea_core::Processor for Obedient {
        fn init(&mut self, context: &InstanceContext) -> ardea_core::Result<()> {
            self.0 = Some(context.clone());
            Ok(())
        }
        fn complete(&mut self, outbox: &mut Outbox) -> ardea_core::Result<Progress> {
            outbox
                .lane::<u64>(ardea_core::Ordinal::FIRST)?
                .push(1, ardea_core::Timestamp::MIN);
            self.0.as_ref().unwrap().signals.cancel();
            Ok(Progress::DONE)
        }
    }
    let node = node(1);
    let journal = Journal::default();
    let mut dag = Dag::new();
    let source = dag.vertex(crate::processors::vertex("source", 1, |_| Obedient(None)));
    let sink = dag.vertex(journal.vertex("sink", 1));
    dag.edge(Edge::between(source, sink));
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    assert!(matches!(over(&job), JobStatus::Cancelled));
    assert_eq!(
        journal.count(|saw| matches!(saw, Saw::EdgeDone(..))),
        0,
        "the input did not end"
    );
}
