//! Tests of joins and sorts across failures and rescales.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Epoch, Guarantee, InstanceContext, ManualClock, Ordinal, Priority, Processor, SnapshotRequest,
    SnapshotWriter, StateChunk,
};
use ardea_operators::*;
use ardea_testkit::{Expected, Harness, ProcessorTest, TestInput, Timestamp};

mod json;

use json::{Json, json};

type Pair = (u8, i64);
type Joined = (Pair, Pair);

fn at(n: i64) -> Timestamp {
    Timestamp::from_secs(n)
}

fn key(pair: &Pair) -> u8 {
    pair.0
}

/// Returns pairs in order of time, with regular watermarks and ends of epochs.
fn in_time(pairs: &[Pair], mark_every: usize, epoch_every: usize) -> TestInput<Pair> {
    let mut input = TestInput::new();
    for (index, pair) in pairs.iter().enumerate() {
        input = input.record(*pair, at(pair.1));
        if index % mark_every == mark_every - 1 {
            input = input.watermark(at(pair.1));
        }
        if index % epoch_every == epoch_every - 1 {
            input = input.barrier();
        }
    }
    input
}

/// Returns a processor of a job whose state is checkpointed.
fn harness(processor: impl Processor + 'static, inputs: usize) -> Harness {
    let clock = ManualClock::new();
    let context = InstanceContext {
        guarantee: Guarantee::ExactlyOnce,
        ..InstanceContext::detached("kept")
    };
    Harness::with_context(processor, inputs, 1, context, clock).unwrap()
}

/// Returns the numbers of entries set and removed in a snapshot.
fn entries(harness: &mut Harness, snapshot: SnapshotRequest) -> (usize, usize) {
    harness
        .step(|kept, _| kept.state().take_snapshot(snapshot))
        .unwrap();
    let mut chunk = StateChunk::default();
    let mut is_done = false;
    while !is_done {
        let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
        let progress = harness.step(|kept, _| kept.state().write_snapshot(&mut writer));
        is_done = progress.unwrap().done;
    }
    let set = chunk.entries().filter(|entry| entry.value.is_some());
    let set = set.count();
    (set, chunk.len() - set)
}

fn commit(harness: &mut Harness, epoch: u64) {
    let told = harness.step(|kept, _| kept.state().on_checkpoint_committed(Epoch(epoch)));
    assert!(told.unwrap().done);
}

fn outer(lower: u64, upper: u64) -> impl Processor + use<> {
    let interval = JoinInterval::between(Duration::from_secs(lower), Duration::from_secs(upper));
    let logic = outer_interval_join(key, key, |left: &Pair, right: Option<&Pair>| {
        (*left, right.copied())
    });
    IntervalJoinP::new(Arc::new(logic), interval).with_codecs(
        Arc::new(Json),
        Arc::new(Json),
        Arc::new(Json),
    )
}

#[test]
fn buffered_records_match_after_a_failure() {
    for (lower, upper) in [(1, 4), (0, 12), (30, 0)] {
        let left: Vec<Pair> = (0..30).map(|n| ((n * n % 3) as u8, n)).collect();
        let right: Vec<Pair> = (0..24).map(|n| ((n % 4) as u8, n + n / 5)).collect();
        let mut expected = Vec::new();
        for one in &left {
            let is_near = |other: &&Pair| {
                let apart = other.1 - one.1;
                one.0 == other.0 && (-lower..=upper).contains(&apart)
            };
            let before = expected.len();
            let near = right.iter().filter(is_near);
            expected.extend(near.map(|other| ((*one, Some(*other)), at(one.1.max(other.1)))));
            if expected.len() == before {
                expected.push(((*one, None), at(one.1 + upper)));
            }
        }
        let (lower, upper) = (lower as u64, upper as u64);
        ProcessorTest::new(move || outer(lower, upper))
            .keyed_input(in_time(&left, 3, 10), key)
            .keyed_input(in_time(&right, 4, 8), key)
            .output(Expected::timed_unordered(expected))
            .forbid_late_output()
            .survives()
            .run();
    }
}

#[test]
fn an_increment_of_an_interval_join_holds_what_came_met_and_went() {
    let mut join = harness(outer(0, 5), 2);
    let read = |join: &mut Harness, input: usize, records: &[Pair]| {
        join.push_all(input, records.iter().map(|pair| (*pair, at(pair.1))));
        join.read(input).unwrap();
    };
    let many: Vec<Pair> = (0..100).map(|n| (7, n)).collect();
    read(&mut join, 0, &many);
    assert_eq!(
        entries(&mut join, SnapshotRequest::changes(Epoch(1), Epoch(0))),
        (100, 0)
    );
    commit(&mut join, 1);
    assert_eq!(
        entries(&mut join, SnapshotRequest::changes(Epoch(2), Epoch(1))),
        (0, 0)
    );

    read(&mut join, 1, &[(7, 50)]);
    let six_met_and_one_came = (7, 0);
    assert_eq!(
        entries(&mut join, SnapshotRequest::changes(Epoch(3), Epoch(1))),
        six_met_and_one_came
    );
    assert_eq!(
        entries(&mut join, SnapshotRequest::changes(Epoch(4), Epoch(1))),
        six_met_and_one_came,
        "no commit of the earlier ones is known"
    );
    commit(&mut join, 4);

    join.watermark(at(90)).unwrap();
    let those_before_85_and_the_right_one = 86;
    assert_eq!(
        entries(&mut join, SnapshotRequest::changes(Epoch(5), Epoch(4))),
        (0, those_before_85_and_the_right_one)
    );
    commit(&mut join, 5);
    assert_eq!(entries(&mut join, SnapshotRequest::full(Epoch(6))), (15, 0));
}

#[test]
fn changes_of_aborted_epochs_are_not_written() {
    let mut join = harness(outer(0, 1), 2);
    assert_eq!(entries(&mut join, SnapshotRequest::full(Epoch(1))), (0, 0));
    commit(&mut join, 1);
    for n in 2..50 {
        join.push(0, (1u8, n * 10), at(n * 10));
        join.read(0).unwrap();
        assert_eq!(
            entries(
                &mut join,
                SnapshotRequest::changes(Epoch(n as u64), Epoch(1))
            ),
            (1, 0)
        );
        let aborted = join.step(|join, _| join.state().on_checkpoint_aborted(Epoch(n as u64)));
        assert!(aborted.unwrap().done);
        join.watermark(at(n * 10 + 5)).unwrap();
    }
}

fn table() -> Vec<Pair> {
    (0..14).map(|n| ((n % 4) as u8, n)).collect()
}

/// Returns a stream, and its expected results with the table.
fn stream() -> (TestInput<Pair>, Expected<Joined>) {
    let pairs: Vec<Pair> = (0..20).map(|n| ((n % 5) as u8, n)).collect();
    let table = table();
    let matches = |one: Pair| {
        let near = table.iter().filter(move |other| other.0 == one.0);
        near.map(move |other| ((one, *other), at(one.1)))
    };
    let expected: Vec<_> = pairs.iter().flat_map(|one| matches(*one)).collect();
    (in_time(&pairs, 4, 7), Expected::timed(expected))
}

fn hash_join(is_keyed: bool) -> impl Processor {
    let logic = inner_hash_join(key, key, |left: &Pair, right: &Pair| (*left, *right));
    let join = HashJoinP::new(Arc::new(logic)).with_codec(Arc::new(Json));
    if is_keyed { join.keyed() } else { join }
}

#[test]
fn a_table_that_all_have_comes_back_to_all() {
    let (input, expected) = stream();
    ProcessorTest::new(|| hash_join(false))
        .keyed_input(input, |pair: &Pair| pair.1)
        .broadcast_input(table())
        .priority(Ordinal::SECOND, Priority::FIRST)
        .output(expected)
        .forbid_late_output()
        .survives()
        .run();
}

#[test]
fn a_table_that_came_by_key_comes_back_by_key() {
    let (input, expected) = stream();
    ProcessorTest::new(|| hash_join(true))
        .keyed_input(input, key)
        .keyed_input(table(), key)
        .priority(Ordinal::SECOND, Priority::FIRST)
        .output(expected)
        .forbid_late_output()
        .survives()
        .run();
}

#[test]
fn a_table_that_has_been_committed_costs_nothing_more() {
    let mut join = harness(hash_join(false), 2);
    join.push_all(1, table().into_iter().map(|pair| (pair, Timestamp::MIN)));
    join.read(1).unwrap();
    join.edge_done(1).unwrap();
    assert_eq!(
        entries(&mut join, SnapshotRequest::full(Epoch(1))),
        (4, 0),
        "an entry a key"
    );
    assert_eq!(
        entries(&mut join, SnapshotRequest::changes(Epoch(2), Epoch(0))),
        (4, 0)
    );
    commit(&mut join, 2);
    join.push(0, (1u8, 1i64), at(1));
    join.read(0).unwrap();
    assert_eq!(
        entries(&mut join, SnapshotRequest::changes(Epoch(3), Epoch(2))),
        (0, 0)
    );
    assert_eq!(entries(&mut join, SnapshotRequest::full(Epoch(4))), (4, 0));
}

#[test]
fn broadcast_state_is_restored_on_all_instances() {
    let logic = || {
        Arc::new(BroadcastLogic {
            create: Vec::new,
            update: |told: &mut Vec<u8>, news: u8| told.push(news),
            apply: |pair: Pair, told: &Vec<u8>| (pair, told.clone()),
        })
    };
    let make = move || BroadcastInputP::new(logic()).with_codec(Arc::new(Json));
    let pairs: Vec<Pair> = (0..12).map(|n| ((n % 5) as u8, n)).collect();
    let told = |n: i64| (0..n.clamp(2, 8) as u8 / 2).collect::<Vec<_>>();
    let expected = pairs.iter().map(|pair| (*pair, told(pair.1)));
    // An update before the first pair, and one after each third and fourth until there are none
    // left.
    let order = [1, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1];
    ProcessorTest::new(make)
        .keyed_input(pairs.clone(), key)
        .broadcast_input(vec![0u8, 1, 2, 3])
        .interleave(order)
        .output(Expected::ordered(expected))
        .survives()
        .run();
}

#[test]
fn a_sort_goes_on_and_keeps_the_order_of_equal_keys() {
    let pairs: Vec<Pair> = (0..40).map(|n| ((n * 7 % 6) as u8, n)).collect();
    let mut expected = pairs.clone();
    expected.sort_by_key(key);
    ProcessorTest::new(|| SortP::new(Arc::new(key)).with_codecs(json()))
        .keyed_input(in_time(&pairs, 40, 9), |pair: &Pair| pair.1)
        .output(Expected::ordered(expected))
        .expect_watermarks([])
        .survives()
        .run();
}

#[test]
fn an_increment_of_a_sort_holds_the_runs_that_came() {
    let mut sort = harness(SortP::new(Arc::new(key)).with_codecs(json()), 1);
    let read = |sort: &mut Harness, pairs: &[Pair]| {
        sort.push_all(0, pairs.iter().map(|pair| (*pair, Timestamp::MIN)));
        sort.read(0).unwrap();
    };
    for n in 0..8 {
        let pairs: Vec<Pair> = (0..1_100).map(|m| ((m % 9) as u8, n)).collect();
        read(&mut sort, &pairs);
    }
    assert_eq!(entries(&mut sort, SnapshotRequest::full(Epoch(1))), (8, 0));
    commit(&mut sort, 1);
    read(&mut sort, &[(1, 1)]);
    assert_eq!(
        entries(&mut sort, SnapshotRequest::changes(Epoch(2), Epoch(1))),
        (1, 0)
    );
    commit(&mut sort, 2);
    sort.edge_done(0).unwrap();
    sort.complete().unwrap();
    let last = SnapshotRequest {
        is_last: true,
        ..SnapshotRequest::changes(Epoch(3), Epoch(2))
    };
    assert_eq!(entries(&mut sort, last), (0, 9));
}

#[test]
fn state_without_a_serializer_is_reported() {
    assert!(SortP::new(Arc::new(key)).unsaved_state().is_some());
    assert_eq!(
        SortP::new(Arc::new(key))
            .with_codecs(json())
            .unsaved_state(),
        None
    );
    assert_eq!(hash_join(false).unsaved_state(), None);
    assert_eq!(outer(0, 1).unsaved_state(), None);
}
