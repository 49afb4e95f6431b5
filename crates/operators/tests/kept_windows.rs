//! Tests of windows across failures and rescales.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::{co_aggregate, collect_list, count, max};
use ardea_core::{
    Epoch, Guarantee, Instance, InstanceContext, ManualClock, Processor, RestoredState,
    SnapshotRequest, SnapshotWriter, StateChunk,
};
use ardea_operators::*;
use ardea_testkit::{Expected, Harness, ProcessorTest, TestInput, Timestamp};

mod entries;
mod json;
mod unpacked;

use entries::{Entries, chunk_of};
use json::json;
use unpacked::unpacked;

/// A cancelled run keeps no state, and `contract_tests.rs` cancels such windows at many more
/// points. Runs with state fail at points of their own.
const CANCELLATIONS: usize = 2;

type Pair = (u8, i64);

fn at(n: i64) -> Timestamp {
    Timestamp::from_secs(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn key(pair: &Pair) -> u8 {
    pair.0
}

/// An input of a window.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Record(Pair),
    Watermark(i64),
    Epoch,
    Advance(u64),
}

/// Returns sixty pairs of five keys, some of them late or within the allowed lateness, with
/// watermarks, ends of epochs and clock advances.
fn script() -> Vec<Happens> {
    let mut script = Vec::new();
    for n in 0..60i64 {
        // Some records are out of order, and some behind the watermark.
        let time = match n % 7 {
            3 => n - 3,
            5 => (n - 9).max(0),
            _ => n,
        };
        script.push(Happens::Record(((n * n % 11) as u8, time)));
        match n % 10 {
            2 => script.push(Happens::Watermark(n - 2)),
            4 => script.push(Happens::Epoch),
            6 => script.push(Happens::Advance(1)),
            9 => script.push(Happens::Watermark(n)),
            _ => {}
        }
    }
    script
}

fn input() -> TestInput<Pair> {
    let begin = TestInput::new();
    script().into_iter().fold(begin, |input, next| match next {
        Happens::Record(pair) => input.record(pair, at(pair.1)),
        Happens::Watermark(n) => input.watermark(at(n)),
        Happens::Epoch => input.barrier(),
        Happens::Advance(n) => input.advance_clock(secs(n)),
    })
}

/// Returns the first output of a processor that runs without failure, and the number of late
/// records.
fn expected<U: Send + 'static>(processor: impl Processor + 'static) -> (Vec<(U, Timestamp)>, u64) {
    let mut whole = Harness::new(processor, 1, 2);
    for next in script() {
        match next {
            Happens::Record(pair) => {
                whole.push(0, pair, at(pair.1));
                whole.read(0).unwrap();
            }
            Happens::Watermark(n) => whole.watermark(at(n)).unwrap(),
            Happens::Epoch => {}
            Happens::Advance(n) => {
                // A round may take several calls.
                let mut was_woken = whole.advance_clock(secs(n)).unwrap();
                while was_woken {
                    was_woken = whole.advance_clock(Duration::ZERO).unwrap();
                }
            }
        }
    }
    whole.edge_done(0).unwrap();
    whole.watermark(Timestamp::MAX).unwrap();
    whole.complete().unwrap();
    (whole.take::<U>(0), whole.metrics().late)
}

/// Runs a window processor with failures and compares it with one without.
fn survives<P, R>(make: impl Fn() -> P + Clone + 'static)
where
    P: Processor + 'static,
    R: PartialEq + Debug + Clone + Send + 'static,
{
    survives_with::<P, WindowResult<u8, R>>(make);
}

/// Works like [`survives`] for a processor that emits records of any type.
fn survives_with<P, U>(make: impl Fn() -> P + Clone + 'static)
where
    P: Processor + 'static,
    U: PartialEq + Debug + Clone + Send + 'static,
{
    let (results, late): (Vec<(U, Timestamp)>, u64) = expected(make());
    assert!(results.len() > 10, "{}", results.len());
    let report = ProcessorTest::new(make)
        .keyed_input(input(), key)
        .output(Expected::timed_unordered(results))
        .output::<Pair>(Expected::anything())
        .expect_late(late)
        .survives()
        .cancellations(CANCELLATIONS)
        .run();
    assert!(report.runs_with_failures > 100);
}

fn sliding(length: u64, slide: u64, lateness: u64) -> WindowSpec {
    let spec = WindowSpec::sliding(secs(length), secs(slide)).unwrap();
    spec.allowed_lateness(secs(lateness))
}

fn counts() -> Arc<impl KeyedFold<Key = u8, Acc = u64, Out = u64, State = ()>> {
    Arc::new(FoldOne::new(key, count()))
}

fn lists() -> Arc<impl KeyedFold<Key = u8, Acc = Vec<Pair>, Out = Vec<Pair>, State = ()>> {
    Arc::new(FoldOne::new(key, collect_list()))
}

#[test]
fn tumbling_windows_go_on_with_what_they_hold() {
    let make = || SlidingWindowP::new(sliding(8, 8, 0), counts()).with_codecs(json(), json());
    survives::<_, u64>(make);
    let make = || SlidingWindowP::new(sliding(8, 8, 6), counts()).with_codecs(json(), json());
    survives::<_, u64>(make);
}

#[test]
fn sliding_windows_go_on_where_the_aggregate_deducts() {
    for (length, slide, lateness) in [(12, 3, 0), (12, 3, 7), (5, 1, 0)] {
        let spec = sliding(length, slide, lateness);
        let make = move || SlidingWindowP::new(spec, counts()).with_codecs(json(), json());
        survives::<_, u64>(make);
    }
}

#[test]
fn sliding_windows_go_on_where_the_aggregate_does_not_deduct() {
    for (length, slide, lateness) in [(12, 3, 0), (12, 3, 7), (5, 1, 0)] {
        let fold = || Arc::new(FoldOne::new(key, max(|pair: &Pair| pair.1)));
        let spec = sliding(length, slide, lateness);
        let make = move || SlidingWindowP::new(spec, fold()).with_codecs(json(), json());
        survives::<_, Option<i64>>(make);
    }
}

#[test]
fn early_results_come_as_if_nothing_had_happened() {
    for lateness in [0, 7] {
        let spec = sliding(12, 6, lateness);
        let early = || EarlyFiring::each_records(2).unwrap();
        let fold = move || Arc::new(FoldOne::new(key, count()).early(early()));
        let make = move || SlidingWindowP::new(spec, fold()).with_codecs(json(), json());
        survives::<_, u64>(make);
    }
}

#[test]
fn early_results_come_at_the_same_times_of_day() {
    let spec = sliding(12, 6, 0);
    let early = || EarlyFiring::every(secs(2)).unwrap();
    let fold = move || Arc::new(FoldOne::new(key, count()).early(early()));
    let make = move || SlidingWindowP::new(spec, fold()).with_codecs(json(), json());
    survives::<_, u64>(make);
}

#[test]
fn days_of_a_time_zone_go_on_over_the_change_to_summer_time() {
    // From 29 March 2024 in Berlin, five hours apart.
    let at = |n: i64| Timestamp::from_secs(1_711_666_800 + n * 5 * 3600);
    let records = move |from: i64, to: i64| (from..to).map(move |n| (((n % 3) as u8, n), at(n)));
    for lateness in [0, 90_000] {
        let spec = WindowSpec::calendar(CalendarUnit::Day, "Europe/Berlin").unwrap();
        let spec = spec.allowed_lateness(secs(lateness));
        let make = move || SlidingWindowP::new(spec, counts()).with_codecs(json(), json());
        let mut whole = Harness::new(make(), 1, 1);
        for (from, to) in [(0, 9), (9, 14), (14, 30)] {
            whole.push_all(0, records(from, to));
            whole.read(0).unwrap();
            whole.watermark(at(to - 1)).unwrap();
        }
        whole.watermark(Timestamp::MAX).unwrap();
        let results = whole.take::<WindowResult<u8, u64>>(0);
        let hours = |r: &WindowResult<u8, u64>| r.end.since(r.start).as_secs() / 3600;
        assert!(results.iter().any(|(result, _)| hours(result) == 23));
        let input = TestInput::new().records(records(0, 9)).watermark(at(8));
        let input = input.barrier().records(records(9, 14)).watermark(at(13));
        let input = input.barrier().records(records(14, 30)).watermark(at(29));
        let report = ProcessorTest::new(make)
            .keyed_input(input, key)
            .output(Expected::timed_unordered(results))
            .survives()
            .cancellations(CANCELLATIONS)
            .run();
        assert!(
            report.runs_with_failures > 50,
            "{}",
            report.runs_with_failures
        );
    }
}

#[test]
fn sessions_go_on() {
    for lateness in [0, 9] {
        let spec = SessionSpec::gap(secs(4)).unwrap();
        let spec = spec.allowed_lateness(secs(lateness));
        survives::<_, u64>(move || SessionWindowP::new(spec, counts()).with_codecs(json()));
        survives_with::<_, WindowChange<u8, u64>>(move || {
            SessionWindowP::new(spec, counts())
                .changes()
                .with_codecs(json())
        });
    }
}

#[test]
fn windows_over_two_inputs_go_on() {
    let both = || FoldTwo::new(key, key, co_aggregate(count(), collect_list()));
    let spec = sliding(6, 3, 0);
    let make = move || SlidingWindowP::new(spec, Arc::new(both())).with_codecs(json(), json());
    let records = |from: i64, to: i64| (from..to).map(|n| (((n % 3) as u8, n), at(n)));
    let input = || {
        let input = TestInput::new().records(records(0, 9)).watermark(at(8));
        input.barrier().records(records(9, 20)).watermark(at(19))
    };
    let mut whole = Harness::new(make(), 2, 1);
    for (from, to) in [(0, 9), (9, 20)] {
        for side in [0, 1] {
            whole.push_all(side, records(from, to));
            whole.read(side).unwrap();
        }
        whole.watermark(at(to - 1)).unwrap();
    }
    whole.watermark(Timestamp::MAX).unwrap();
    let results = whole.take::<WindowResult<u8, (u64, Vec<Pair>)>>(0);
    ProcessorTest::new(make)
        .keyed_input(input(), key)
        .keyed_input(input(), key)
        .output(Expected::timed_unordered(results))
        .survives()
        .cancellations(CANCELLATIONS)
        .run();
}

/// Returns the accumulators of partial results, added up by key and time.
fn added_up(partials: &[(Partial<u8, u64>, Timestamp)]) -> BTreeMap<(u8, Timestamp), u64> {
    let mut sums = BTreeMap::new();
    for (Partial { key, acc }, time) in partials {
        *sums.entry((*key, *time)).or_default() += acc;
    }
    sums
}

#[test]
fn first_stages_hand_on_all_that_they_hold_at_the_end_of_an_epoch() {
    let make = || SliceCombineP::new(sliding(12, 3, 0), counts()).keys_max(6);
    let (partials, late) = expected::<Partial<u8, u64>>(make());
    let expected_sums = added_up(&partials);
    let check = move |partials: &[(Partial<u8, u64>, Timestamp)]| {
        let sums = added_up(partials);
        match sums == expected_sums {
            true => Ok(()),
            false => Err(format!("{sums:?}\ninstead of\n{expected_sums:?}")),
        }
    };
    ProcessorTest::new(make)
        .keyed_input(input(), key)
        .output(Expected::check(check.clone()))
        .output::<Pair>(Expected::anything())
        .expect_late(late)
        .survives()
        .cancellations(CANCELLATIONS)
        .run();
    let make = || GroupCombineP::new(counts()).keys_max(6);
    let (partials, _) = expected::<Partial<u8, u64>>(make());
    let expected_sums = added_up(&partials);
    ProcessorTest::new(make)
        .keyed_input(input(), key)
        .output(Expected::check(move |partials| {
            match added_up(partials) == expected_sums {
                true => Ok(()),
                false => Err(format!("{partials:?}")),
            }
        }))
        .expect_watermarks([])
        .survives()
        .cancellations(CANCELLATIONS)
        .run();
}

#[test]
fn groups_go_on_with_what_they_hold() {
    let (results, _) = expected::<(u8, u64)>(GroupP::new(counts()));
    ProcessorTest::new(|| GroupP::new(counts()).with_codecs(json()))
        .keyed_input(input(), key)
        .output(Expected::timed_unordered(results))
        .expect_watermarks([])
        .survives()
        .cancellations(CANCELLATIONS)
        .run();
    let (results, _) = expected::<(u8, Vec<Pair>)>(GroupP::new(lists()));
    ProcessorTest::new(|| GroupP::new(lists()).with_codecs(json()))
        .keyed_input(input(), key)
        .output(Expected::timed_unordered(results))
        .expect_watermarks([])
        .survives()
        .cancellations(CANCELLATIONS)
        .run();
}

#[test]
fn state_without_a_serializer_is_reported() {
    let spec = sliding(8, 8, 0);
    let gap = SessionSpec::gap(secs(1)).unwrap();
    assert!(
        SlidingWindowP::new(spec, counts())
            .unsaved_state()
            .is_some()
    );
    assert!(SessionWindowP::new(gap, counts()).unsaved_state().is_some());
    assert!(GroupP::new(counts()).unsaved_state().is_some());
    assert_eq!(SliceCombineP::new(spec, counts()).unsaved_state(), None);
    assert_eq!(GroupCombineP::new(counts()).unsaved_state(), None);
}

/// Returns a processor of a job whose state is checkpointed.
fn keeping(processor: impl Processor + 'static) -> Harness {
    let hand = ManualClock::new();
    let context = InstanceContext {
        guarantee: Guarantee::ExactlyOnce,
        clock: hand.clock(),
        ..InstanceContext::detached("tested")
    };
    Harness::with_context(processor, 1, 2, context, hand).unwrap()
}

/// Takes a snapshot, writes it at once, and applies it to the entries.
fn lay_over(entries: &mut Entries, of: &mut Harness, snapshot: SnapshotRequest) {
    of.barrier(snapshot.epoch).unwrap();
    of.step(|p, _| p.state().take_snapshot(snapshot)).unwrap();
    let mut chunk = StateChunk::default();
    let mut write = || {
        of.step(|p, _| {
            p.state()
                .write_snapshot(&mut SnapshotWriter::new(&mut chunk, usize::MAX))
        })
    };
    while !write().unwrap().done {}
    for entry in &chunk {
        let place = (entry.state.to_string(), entry.partition, entry.key.to_vec());
        match entry.value {
            Some(value) => entries.insert(place, value.to_vec()),
            None => entries.remove(&place),
        };
    }
}

/// Returns the entries of a processor restored from `entries`, with packs decoded and obsolete
/// entries removed.
fn taken_up(entries: &Entries, by: impl Processor + 'static) -> Entries {
    let chunk = chunk_of(entries);
    let mut of = keeping(by);
    let mut position = 0;
    let mut state = RestoredState::new(&chunk, &mut position, Instance::ONLY, usize::MAX);
    of.step(|p, _| p.state().restore(&mut state)).unwrap();
    while !of
        .step(|p, _| p.state().on_restored(Epoch(1)))
        .unwrap()
        .done
    {}
    let mut full = Entries::new();
    lay_over(&mut full, &mut of, SnapshotRequest::full(Epoch(2)));
    let apart = full
        .into_iter()
        .flat_map(
            |((state, partition, key), value)| match state.starts_with("slices") {
                true => unpacked(&value)
                    .into_iter()
                    .map(|(key, value)| ((state.clone(), partition, key), value))
                    .collect(),
                false => vec![((state, partition, key), value)],
            },
        );
    apart.collect()
}

/// Checks that the committed entries with an increment applied equal a full snapshot, without
/// obsolete entries. Some snapshots are committed, some are lost, and some are aborted.
fn leaves_nothing_behind<P: Processor + 'static>(make: impl Fn() -> P) {
    let mut of = keeping(make());
    let (mut committed, mut told) = (Entries::new(), None);
    let (mut epoch, mut most) = (Epoch(0), 0);
    for (turn, next) in script().into_iter().enumerate() {
        match next {
            Happens::Record(pair) => {
                of.push(0, pair, at(pair.1));
                of.read(0).unwrap();
            }
            Happens::Watermark(n) => of.watermark(at(n)).unwrap(),
            Happens::Epoch | Happens::Advance(_) => {}
        }
        epoch = epoch.next();
        let snapshot = told.map_or(SnapshotRequest::full(epoch), |told| {
            SnapshotRequest::changes(epoch, told)
        });
        let mut entries = committed.clone();
        lay_over(&mut entries, &mut of, snapshot);
        most = most.max(entries.len());
        match turn % 4 {
            0 => {
                while !of
                    .step(|p, _| p.state().on_checkpoint_committed(epoch))
                    .unwrap()
                    .done
                {}
                (committed, told) = (entries.clone(), Some(epoch));
            }
            1 => {
                while !of
                    .step(|p, _| p.state().on_checkpoint_aborted(epoch))
                    .unwrap()
                    .done
                {}
            }
            _ => {}
        }
        let mut full = Entries::new();
        epoch = epoch.next();
        lay_over(&mut full, &mut of, SnapshotRequest::full(epoch));
        let (left, full) = (taken_up(&entries, make()), taken_up(&full, make()));
        assert_eq!(left, full, "after {next:?}");
    }
    assert!(most > 3, "{most}");
}

#[test]
fn nothing_that_is_gone_stays_in_increments() {
    for (length, slide, lateness) in [(8, 8, 0), (2, 2, 0), (8, 8, 6), (12, 3, 0), (12, 3, 7)] {
        let spec = sliding(length, slide, lateness);
        leaves_nothing_behind(|| SlidingWindowP::new(spec, counts()).with_codecs(json(), json()));
        leaves_nothing_behind(|| SlidingWindowP::new(spec, lists()).with_codecs(json(), json()));
    }
    let early = || EarlyFiring::each_records(2).unwrap();
    let fold = || Arc::new(FoldOne::new(key, count()).early(early()));
    leaves_nothing_behind(|| {
        SlidingWindowP::new(sliding(12, 6, 0), fold()).with_codecs(json(), json())
    });
    let gap = SessionSpec::gap(secs(4)).unwrap();
    leaves_nothing_behind(|| SessionWindowP::new(gap, counts()).with_codecs(json()));
    leaves_nothing_behind(|| GroupP::new(counts()).with_codecs(json()));
}

#[test]
fn slices_of_another_length_are_refused() {
    let window = |length, slide| {
        let window = SlidingWindowP::new(sliding(length, slide, 0), counts());
        keeping(window.with_codecs(json(), json()))
    };
    let mut old = window(10, 2);
    old.push(0, (1u8, 7i64), at(7));
    old.read(0).unwrap();
    let mut chunk = StateChunk::default();
    old.step(|p, _| p.state().take_snapshot(SnapshotRequest::full(Epoch(1))))
        .unwrap();
    let mut write = || {
        old.step(|p, _| {
            p.state()
                .write_snapshot(&mut SnapshotWriter::new(&mut chunk, usize::MAX))
        })
    };
    while !write().unwrap().done {}
    assert_eq!(chunk.len(), 2);
    let restored = |mut new: Harness| {
        let mut position = 0;
        let mut state = RestoredState::new(&chunk, &mut position, Instance::ONLY, usize::MAX);
        new.step(|p, _| p.state().restore(&mut state))
    };
    restored(window(6, 2)).unwrap();
    let error = restored(window(10, 5)).unwrap_err();
    assert!(error.to_string().contains("2000000 us"), "{error}");
}
