//! Micro-batches: their order, their ends without records, and the settings that they refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ardea_core::{
    Dag, Edge, Epoch, ErrorCode, InstanceContext, Ordinal, Outbox, Processor, Progress, Result,
    Routing, Timestamp, Watermark,
};
use ardea_engine::{
    ExecutionMode, JobConfig, MicroBatchConfig, Node, NodeConfig, OnInstanceFailure,
};

use crate::processors::{
    Journal, Saw, completes, config, emit, endless, numbers, over, relay, silence, source, until,
    vertex,
};

/// Long enough to never end within a test.
const ENDLESS: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_millis(1);

fn node(threads: u32, epoch: Duration) -> Node {
    let micro_batch = MicroBatchConfig {
        epoch,
        ..MicroBatchConfig::default()
    };
    let config = NodeConfig {
        mode: ExecutionMode::MicroBatch,
        micro_batch,
        ..config(threads)
    };
    Node::start(config).unwrap()
}

#[test]
fn records_are_dealt_in_blocks_by_their_position() {
    let (mut dag, journal) = (Dag::new(), Journal::default());
    let from = dag.vertex(numbers("numbers", 1, 100));
    let to = dag.vertex(journal.vertex("to", 2));
    dag.edge(Edge::between(from, to).capacity(1.try_into().unwrap()));
    completes(&node(2, ENDLESS), &dag);
    // A chunk has 16 records.
    let blocks = |first: u64| {
        let numbers = 0..100;
        let own = numbers.filter(move |number| number / 16 % 2 == first);
        own.collect::<Vec<u64>>()
    };
    assert_eq!(journal.records_of(0), blocks(0));
    assert_eq!(journal.records_of(1), blocks(1));
}

#[test]
fn an_instance_reads_its_producers_in_turn() {
    let (mut dag, journal) = (Dag::new(), Journal::default());
    let from = dag.vertex(numbers("numbers", 3, 3_000));
    let to = dag.vertex(journal.vertex("to", 1));
    dag.edge(Edge::between(from, to));
    completes(&node(3, ENDLESS), &dag);
    let expected = (0..3).flat_map(|first| (first..3_000).step_by(3));
    assert_eq!(journal.records_of(0), expected.collect::<Vec<u64>>());
}

#[test]
fn a_source_that_feeds_two_producers_of_one_step_is_not_blocked_by_their_order() {
    let (mut dag, journal) = (Dag::new(), Journal::default());
    let from = dag.vertex(numbers("numbers", 1, 5_000));
    let producers = dag.vertex(relay("producers", 2));
    let to = dag.vertex(journal.vertex("to", 1));
    let one = 1.try_into().unwrap();
    dag.edge(Edge::between(from, producers).capacity(one));
    dag.edge(Edge::between(producers, to).capacity(one));
    completes(&node(2, ENDLESS), &dag);
    assert_eq!(journal.records(), (0..5_000).collect::<Vec<_>>());
}

#[test]
fn a_watermark_takes_effect_although_no_record_follows() {
    let (mut dag, journal) = (Dag::new(), Journal::default());
    let once = dag.vertex(source("once", 2, |_| {
        let mut has_sent = false;
        move |outbox: &mut Outbox, context: &InstanceContext| {
            if std::mem::replace(&mut has_sent, true) {
                outbox.wake_at(context.clock.now() + ENDLESS);
                return Ok(Progress::NONE);
            }
            emit(outbox, 7, Timestamp::from_secs(7))?;
            outbox.watermark(Watermark(Timestamp::from_secs(7)));
            Ok(Progress::MADE)
        }
    }));
    let to = dag.vertex(journal.vertex("to", 1));
    dag.edge(Edge::between(once, to));
    let node = node(2, SHORT);
    let job = node.submit(&dag, JobConfig::named("test")).unwrap();
    until("the watermark is there", || {
        journal.count(|saw| *saw == Saw::Watermark(Timestamp::from_secs(7))) == 1
    });
    assert!(job.sum("to", |counters| counters.batches) > 0);
    job.drain();
    over(&job);
}

#[test]
fn an_idle_source_holds_back_no_other() {
    let (mut dag, journal) = (Dag::new(), Journal::default());
    let silent = dag.vertex(silence("silence", 1));
    let loud = dag.vertex(endless("endless", 1));
    let to = dag.vertex(journal.vertex("to", 1));
    dag.edge(Edge::between(silent, to));
    dag.edge(Edge::from_ordinals(
        (loud, Ordinal::FIRST),
        (to, Ordinal::SECOND),
    ));
    let node = node(2, SHORT);
    let job = node.submit(&dag, JobConfig::named("test")).unwrap();
    until("records arrive in many micro-batches", || {
        journal.len() > 1_000 && job.sum("to", |counters| counters.batches) > 10
    });
    job.drain();
    over(&job);
}

#[test]
fn an_epoch_ends_on_all_instances_between_micro_batches() {
    let (mut dag, journal) = (Dag::new(), Journal::default());
    let from = dag.vertex(endless("endless", 2));
    let middle = dag.vertex(relay("middle", 2));
    let to = dag.vertex(journal.vertex("to", 2));
    dag.edge(Edge::between(from, middle));
    dag.edge(Edge::between(middle, to).routing(Routing::keyed(|n: &u64| *n)));
    let node = node(2, SHORT);
    let job = node.submit(&dag, JobConfig::named("test")).unwrap();
    for epoch in 1..=3 {
        job.end_epoch();
        until("all have ended the epoch", || {
            journal.count(|saw| matches!(saw, Saw::Epoch(_))) == 2 * epoch
        });
    }
    job.drain();
    over(&job);
}

/// A source that ends its epochs when it may, and counts the calls for it.
struct Slow {
    may_end: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
}

impl Processor for Slow {
    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        Ok(Progress::NONE)
    }

    fn on_epoch(&mut self, _: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(match self.may_end.load(Ordering::SeqCst) {
            true => Progress::DONE,
            false => Progress::NONE,
        })
    }
}

#[test]
fn a_source_that_waits_for_the_end_of_an_epoch_is_not_called_for_micro_batches() {
    let (may_end, calls) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let (mut dag, mut other) = (Dag::new(), Dag::new());
    let (may, counted) = (Arc::clone(&may_end), Arc::clone(&calls));
    let slow = dag.vertex(vertex("slow", 1, move |_| Slow {
        may_end: Arc::clone(&may),
        calls: Arc::clone(&counted),
    }));
    let (journal, ticks) = (Journal::default(), Journal::default());
    let to = dag.vertex(journal.vertex("to", 1));
    dag.edge(Edge::between(slow, to));
    let endless = other.vertex(endless("endless", 1));
    let ticks = other.vertex(ticks.vertex("ticks", 1));
    other.edge(Edge::between(endless, ticks));
    let micro_batch = MicroBatchConfig {
        epoch: SHORT,
        records: None,
        ..MicroBatchConfig::default()
    };
    let node = Node::start(NodeConfig {
        mode: ExecutionMode::MicroBatch,
        micro_batch,
        idle_poll: ENDLESS,
        ..config(2)
    });
    let node = node.unwrap();
    let job = node.submit(&dag, JobConfig::named("test")).unwrap();
    job.end_epoch();
    until("the source is called", || calls.load(Ordering::SeqCst) > 0);
    let clock = node.submit(&other, JobConfig::named("clock")).unwrap();
    until("many micro-batches have ended", || {
        clock.sum("ticks", |counters| counters.batches) > 50
    });
    let called = calls.load(Ordering::SeqCst);
    assert!(called < 10, "called {called} times");
    may_end.store(true, Ordering::SeqCst);
    job.cancel();
    clock.cancel();
    over(&job);
    over(&clock);
}

#[test]
fn a_job_that_restarts_single_instances_is_refused() {
    let mut dag = Dag::new();
    dag.vertex(silence("silence", 1));
    let config = JobConfig {
        on_failure: OnInstanceFailure::Restart { at_most: 1 },
        ..JobConfig::named("test")
    };
    let error = node(1, SHORT).submit(&dag, config).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
}

#[test]
fn micro_batches_without_length_are_refused() {
    let mut dag = Dag::new();
    dag.vertex(silence("silence", 1));
    let node = node(1, Duration::ZERO);
    let error = node.submit(&dag, JobConfig::named("test")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
}
