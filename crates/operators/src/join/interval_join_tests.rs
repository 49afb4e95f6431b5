//! Tests of the interval join: pairs, expiry, lateness, unmatched left records.

use super::*;
use crate::test_driver::{Drive, LaneOutput, at};
use ardea_core::OutboxRuntime;
use proptest::prelude::*;

/// A key and the event time in seconds.
type Record = (u8, i64);
type Pair = (Record, Option<Record>);

fn key(record: &Record) -> u8 {
    record.0
}

fn interval(lower: i64, upper: i64) -> JoinInterval {
    JoinInterval::from_micros(lower * 1_000_000, upper * 1_000_000).unwrap()
}

fn timed(records: impl IntoIterator<Item = Record>) -> Vec<(Record, Timestamp)> {
    records
        .into_iter()
        .map(|record| (record, at(record.1)))
        .collect()
}

#[test]
fn a_left_record_without_a_match_comes_when_none_can_come() {
    Drive::every_schedule(|drive| {
        let logic = outer_interval_join(key, key, |left: &Record, right: Option<&Record>| {
            (*left, right.copied())
        });
        let mut join = IntervalJoinP::new(Arc::new(logic), interval(0, 5));
        let seen = drive
            .records(timed([(1, 10), (2, 10), (3, 12)]))
            .records_on(Ordinal::SECOND, timed([(2, 15), (1, 16)]))
            .watermark(at(15))
            .watermark(at(16))
            .run::<Pair>(&mut join);
        let expected = [
            LaneOutput::Record(((2, 10), Some((2, 15))), at(15)),
            LaneOutput::Watermark(at(15)),
            LaneOutput::Record(((1, 10), None), at(15)),
            LaneOutput::Watermark(at(16)),
            LaneOutput::Record(((3, 12), None), at(17)),
        ];
        assert_eq!(seen.events(), expected);
        seen.assert_in_time();
        assert_eq!(join.order.keys.len(), 0);
    });
}

#[test]
fn late_records_are_counted_and_not_joined() {
    let drive = Drive::default();
    let metrics = Arc::clone(&drive.context.metrics);
    let logic = inner_interval_join(key, key, |left: &Record, right: &Record| {
        (*left, Some(*right))
    });
    let seen = drive
        .records(timed([(1, 10)]))
        .watermark(at(9))
        .records_on(Ordinal::SECOND, timed([(1, 8), (1, 9)]))
        .run::<Pair>(&mut IntervalJoinP::new(Arc::new(logic), interval(-5, 5)));
    assert_eq!(seen.values(), [((1, 10), Some((1, 9)))]);
    assert_eq!(metrics.snapshot().late, 1);
}

#[test]
fn a_record_without_event_time_is_refused_by_its_position() {
    let logic = inner_interval_join(key, key, |left: &Record, right: &Record| {
        (*left, Some(*right))
    });
    let drive = Drive::default().records::<Record>([((1, 1), at(1)), ((1, 2), Timestamp::MIN)]);
    let mut join = IntervalJoinP::new(Arc::new(logic), interval(-5, 5));
    let error = drive.try_run::<Pair>(&mut join).unwrap_err();
    assert_eq!(error.record(), Some((0, 1)));
}

/// Interval bounds and event times in microseconds, many of them near the minimum or maximum.
fn extreme() -> impl Strategy<Value = i64> {
    let (first, last) = (i64::MIN + 1, i64::MAX - 1);
    prop_oneof![first..first + 6, -6i64..6, last - 6..=last]
}

proptest! {
    #[test]
    fn it_agrees_with_nested_loops_at_the_ends_of_time(
        left in prop::collection::vec(extreme(), 0..8),
        right in prop::collection::vec(extreme(), 0..8),
        bounds in (extreme(), extreme()),
        mark in prop::option::of(extreme()),
    ) {
        let (lower, upper) = (bounds.0.min(bounds.1), bounds.0.max(bounds.1));
        let interval = JoinInterval::from_micros(lower, upper).unwrap();
        let timed = |times: &[i64]| {
            times.iter().map(|time| ((0u8, *time), Timestamp::from_micros(*time))).collect::<Vec<_>>()
        };
        let mut drive = Drive::with_room(3).records(timed(&left)).records_on(Ordinal::SECOND, timed(&right));
        if let Some(mark) = mark {
            drive = drive.watermark(Timestamp::from_micros(mark));
        }
        let logic = outer_interval_join(key, key, |left: &Record, right: Option<&Record>| (*left, right.copied()));
        let mut join = IntervalJoinP::new(Arc::new(logic), interval);
        let seen = drive.watermark(Timestamp::MAX).run::<Pair>(&mut join);
        seen.assert_in_time();
        prop_assert!(seen.records().iter().all(|(_, time)| time.is_event_time()));
        prop_assert_eq!(join.order.keys.len(), 0);

        let mut expected: Vec<Pair> = Vec::new();
        for one in &left {
            let meets = |other: &&i64| {
                let apart = i128::from(**other) - i128::from(*one);
                i128::from(lower) <= apart && apart <= i128::from(upper)
            };
            let matches: Vec<_> = right.iter().filter(meets).map(|other| ((0, *one), Some((0, *other)))).collect();
            expected.extend(&matches);
            if matches.is_empty() {
                expected.push(((0, *one), None));
            }
        }
        let mut pairs = seen.values();
        pairs.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(pairs, expected);
    }
}

#[test]
fn records_without_possible_matches_are_not_buffered() {
    let logic = inner_interval_join(key, key, |left: &Record, right: &Record| {
        (*left, Some(*right))
    });
    let mut join = IntervalJoinP::new(Arc::new(logic), interval(-3, 2));
    let mut outbox = Outbox::new(1, 1000);
    let mut inbox = Inbox::default();
    for n in 0..100 {
        for input in [Ordinal::FIRST, Ordinal::SECOND] {
            inbox.fill(ardea_core::Chunk::new(ardea_core::Rows::from_iter(timed(
                [((n % 5) as u8, n)],
            ))));
            join.process(input, &mut inbox, &mut outbox).unwrap();
        }
        while !join
            .on_watermark(Watermark(at(n)), &mut outbox)
            .unwrap()
            .done
        {}
        outbox.chunk_mut(0).clear();
        while outbox.take_marker(0).is_some() {}
        let kept = join.order.keys.len();
        assert!(kept <= 4, "{kept} keys at {n}");
    }
}

proptest! {
    #[test]
    fn it_agrees_with_nested_loops(
        records in prop::collection::vec((any::<bool>(), 0u8..3, 0i64..30), 0..80),
        bounds in (-8i64..8, 0i64..8),
        mark_every in 1usize..12,
        room in 1usize..6,
    ) {
        let interval = interval(bounds.0, bounds.0 + bounds.1);
        let logic = outer_interval_join(key, key, |left: &Record, right: Option<&Record>| (*left, right.copied()));
        let mut drive = Drive::with_room(room);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let (mut latest, mut mark) = (0, 0);
        for (index, (is_left, key, time)) in records.into_iter().enumerate() {
            // Out of order by at most the lag of ten seconds, never late.
            let time = (latest + time - 15).max(mark);
            latest = latest.max(time);
            let record = (key, time);
            if is_left { left.push(record) } else { right.push(record) }
            drive = drive.records_on(if is_left { Ordinal::FIRST } else { Ordinal::SECOND }, timed([record]));
            if index % mark_every == 0 && latest - 10 > mark {
                mark = latest - 10;
                drive = drive.watermark(at(mark));
            }
        }
        let mut expected: Vec<Pair> = Vec::new();
        for one in &left {
            let matches: Vec<_> =
                right.iter().filter(|other| one.0 == other.0 && interval.holds(at(one.1), at(other.1))).collect();
            expected.extend(matches.iter().map(|other| (*one, Some(**other))));
            if matches.is_empty() {
                expected.push((*one, None));
            }
        }
        let seen = drive.watermark(Timestamp::MAX).run::<Pair>(&mut IntervalJoinP::new(Arc::new(logic), interval));
        seen.assert_in_time();
        let mut pairs = seen.values();
        pairs.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(pairs, expected);
    }
}
