//! A paused job reads nothing while records in flight are processed; draining overrides pausing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_core::{
    Dag, Edge, InstanceContext, Outbox, Processor, Progress, Result, Routing, SourceControl,
};
use ardea_engine::{JobConfig, JobStatus};

use crate::processors::{Journal, completes, endless, node, numbers, over, relay, until, vertex};
use crate::sites::{AnyWhere, Sites};

#[test]
fn a_paused_job_comes_to_rest_with_nothing_on_its_way_and_goes_on_when_it_is_resumed() {
    let mut dag = Dag::new();
    let source = dag.vertex(endless("source", 2));
    let sink = dag.vertex(relay("sink", 2));
    dag.edge(Edge::between(source, sink).routing(Routing::keyed(|n: &u64| *n)));
    let node = node(2);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    let count = |vertex: &str| match vertex {
        "source" => job.sum("source", |m| m.records_out),
        _ => job.sum("sink", |m| m.records_in),
    };
    // A job on the same threads: when it has ended, many slices have passed on each of them.
    let others_run = || {
        let mut other = Dag::new();
        other.vertex(numbers("other", 2, 10_000));
        completes(&node, &other);
    };
    for _ in 0..5 {
        let before = count("sink");
        until("records flow", || count("sink") > before + 1_000);
        job.pause();
        others_run();
        let mut last = (0, 0);
        until("all that was read has come", || {
            let now = (count("source"), count("sink"));
            let rests = now.0 == now.1 && now == last;
            last = now;
            rests
        });
        others_run();
        assert_eq!(last, (count("source"), count("sink")));
        job.resume();
    }
    job.pause();
    job.drain();
    assert!(matches!(over(&job), JobStatus::Drained));
}

/// A source that is called while its job is paused, and pauses itself.
struct Knows {
    context: InstanceContext,
    asleep: Arc<AtomicU64>,
}

impl Processor for Knows {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = context.clone();
        Ok(())
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        if self.context.signals.is_paused() {
            self.asleep.fetch_add(1, Ordering::SeqCst);
        }
        Ok(Progress::NONE)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl SourceControl for Knows {
    fn pauses_itself(&self) -> bool {
        true
    }
}

#[test]
fn a_source_that_pauses_itself_is_called_all_the_same() {
    let asleep = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&asleep);
    let mut dag = Dag::new();
    dag.vertex(vertex("source", 1, move |_| Knows {
        context: InstanceContext::detached("source"),
        asleep: Arc::clone(&seen),
    }));
    let node = node(1);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    job.pause();
    until("it has been called", || asleep.load(Ordering::SeqCst) > 1);
    job.drain();
    over(&job);
}

#[test]
fn what_comes_from_elsewhere_is_not_paused() {
    let journal = Journal::default();
    let mut dag = Dag::new();
    let source = dag.vertex(numbers("source", 2, 5_000));
    let sink = dag.vertex(journal.vertex("sink", 2));
    dag.edge(Edge::between(source, sink).codec(Arc::new(AnyWhere)));
    let mut all = Sites::new(2, 1);
    all.deploy(&dag, &[vec![0, 0], vec![1, 1]]);
    all.parts[1].pause();
    all.complete();
    assert_eq!(journal.records(), (0..5_000).collect::<Vec<_>>());
}
