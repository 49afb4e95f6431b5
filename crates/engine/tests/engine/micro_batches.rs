//! Micro-batches: their order, their ends without records, and the settings that they refuse.

use std::time::Duration;

use ardea_core::InstanceContext;
use ardea_core::{Dag, Edge, ErrorCode, Ordinal, Outbox, Progress, Routing, Timestamp, Watermark};
use ardea_engine::{
    ExecutionMode, JobConfig, MicroBatchConfig, Node, NodeConfig, OnInstanceFailure,
};

use crate::processors::{
    Journal, Saw, completes, config, emit, endless, numbers, over, relay, silence, source, until,
};

/// Long enough to never end within a test.
const ENDLESS: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_millis(1);

fn node(threads: u32, epoch: Duration) -> Node {
    let micro_batch = MicroBatchConfig {
        epoch,
        records: None,
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
