//! Draining ends the sources, and all records that they have emitted are processed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ardea_core::{
    Dag, Edge, InstanceContext, Isolation, Ordinal, Outbox, Priority, Processor, Progress, Result,
    Routing, SourceControl, Timestamp,
};
use ardea_engine::{JobConfig, JobStatus, Node, NodeConfig};

use crate::processors::{
    Journal, Saw, config, emit, endless, node, over, relay, room, silence, source, until, vertex,
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

#[test]
fn what_leads_to_an_urgent_input_goes_on_to_its_end() {
    const LAST: u64 = 1_000_000;
    let journal = Journal::default();
    let enough = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&enough);
    let mut dag = Dag::new();
    let table = dag.vertex(source("table", 1, move |_| {
        let stop = Arc::clone(&stop);
        move |outbox: &mut Outbox, context: &InstanceContext| {
            assert!(!context.signals.is_draining());
            let is_last = stop.load(Ordering::SeqCst);
            emit(outbox, if is_last { LAST } else { 1 }, Timestamp::MIN)?;
            Ok(Progress::done_if(is_last))
        }
    }));
    let middle = dag.vertex(relay("middle", 1));
    let probe = dag.vertex(endless("probe", 2));
    let join = dag.vertex(journal.vertex("join", 2));
    dag.edge(Edge::between(table, middle));
    dag.edge(
        Edge::between(middle, join)
            .routing(Routing::broadcast::<u64>())
            .priority(Priority::FIRST),
    );
    dag.edge(Edge::from_ordinals((probe, Ordinal(0)), (join, Ordinal(1))));
    let node = node(2);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    until("the table is being built", || journal.len() > 100);
    job.drain();
    let before = journal.len();
    until("it goes on", || {
        journal.len() > before + 1_000 || job.status().is_over()
    });
    enough.store(true, Ordering::SeqCst);
    let status = over(&job);
    assert!(matches!(status, JobStatus::Drained), "{status}");
    for instance in 0..2 {
        let saw = journal.of(instance);
        let at = |what: &dyn Fn(&Saw) -> bool| saw.iter().position(what);
        let last = at(&|saw| matches!(saw, Saw::Record { value: LAST, .. })).unwrap();
        let probed = at(&|saw| matches!(saw, Saw::Record { input: 1, .. })).unwrap();
        assert!(last < probed, "the table is whole before it is asked");
    }
}

#[test]
fn a_source_that_looks_at_the_signals_in_the_middle_of_a_call_does_not_pass_for_ended() {
    let (is_reading, is_draining) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (reading, drained) = (Arc::clone(&is_reading), Arc::clone(&is_draining));
    let mut dag = Dag::new();
    let looking = source("source", 1, move |_| {
        let (reading, drained) = (Arc::clone(&reading), Arc::clone(&drained));
        move |_: &mut Outbox, context: &InstanceContext| {
            reading.store(true, Ordering::SeqCst);
            until("the job drains", || drained.load(Ordering::SeqCst));
            Ok(Progress::done_if(context.signals.is_draining()))
        }
    });
    dag.vertex(looking.isolation(Isolation::Thread));
    let node = node(1);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    until("it reads", || is_reading.load(Ordering::SeqCst));
    job.drain();
    is_draining.store(true, Ordering::SeqCst);
    let status = over(&job);
    assert!(matches!(status, JobStatus::Drained), "{status}");
}

#[test]
fn a_job_whose_sources_left_nothing_out_has_completed_though_it_was_drained() {
    struct AtEnd(bool);
    impl Processor for AtEnd {
        fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
            Ok(Progress::NONE)
        }

        fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
            Some(self)
        }
    }

    impl SourceControl for AtEnd {
        fn is_at_end(&self) -> bool {
            self.0
        }
    }
    for all in [true, false] {
        let node = node(1);
        let mut dag = Dag::new();
        dag.vertex(vertex("one", 1, |_| AtEnd(true)));
        dag.vertex(vertex("other", 1, move |_| AtEnd(all)));
        let job = node.submit(&dag, JobConfig::default()).unwrap();
        job.drain();
        let status = over(&job);
        assert_eq!(matches!(status, JobStatus::Completed), all, "{status}");
        assert_eq!(matches!(status, JobStatus::Drained), !all, "{status}");
    }
}
