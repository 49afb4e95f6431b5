//! Tests of all operators except windows under the hostile schedules of the test kit.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_core::{ErrorCode, OnError, Ordinal, Priority};
use ardea_operators::*;
use ardea_testkit::{Counted, Expected, LiveCount, ProcessorTest, TestInput, Timestamp};

type Pair = (u8, i64);

fn at(n: i64) -> Timestamp {
    Timestamp::from_secs(n)
}

fn timed(numbers: impl IntoIterator<Item = i64>) -> Vec<(i64, Timestamp)> {
    numbers.into_iter().map(|n| (n, at(n))).collect()
}

/// Returns twenty numbers in order of time, with two watermarks and the end of an epoch between
/// them.
fn numbers() -> TestInput<i64> {
    let first = TestInput::new()
        .records(timed(0..10))
        .watermark(at(9))
        .barrier();
    first.records(timed(10..20)).watermark(at(19))
}

/// Returns the same as pairs of a key below three and the number.
fn pairs() -> TestInput<Pair> {
    let pair = |n: i64| (((n % 3) as u8, n), at(n));
    let first = TestInput::new()
        .records((0..10).map(pair))
        .watermark(at(9))
        .barrier();
    first.records((10..20).map(pair)).watermark(at(19))
}

fn key(pair: &Pair) -> u8 {
    pair.0
}

#[test]
fn maps_and_filters_keep_the_contract() {
    ProcessorTest::new(|| MapP::new(Arc::new(|n: i64| n * 2)))
        .input(numbers())
        .output(Expected::timed((0..20).map(|n| (n * 2, at(n)))))
        .forbid_late_output()
        .run();
    ProcessorTest::new(|| FilterP::new(Arc::new(|n: &i64| n % 3 == 0)))
        .input(numbers())
        .output(Expected::timed(timed((0..20).step_by(3))))
        .forbid_late_output()
        .run();
    ProcessorTest::new(|| FilterMapP::new(Arc::new(|n: i64| (n % 3 == 0).then_some(n))))
        .input(numbers())
        .output(Expected::timed(timed((0..20).step_by(3))))
        .forbid_late_output()
        .run();
    ProcessorTest::new(|| MapTimedP::new(Arc::new(|n: i64, time: Timestamp| (n, time))))
        .input(numbers())
        .output(Expected::timed((0..20).map(|n| ((n, at(n)), at(n)))))
        .forbid_late_output()
        .run();
    ProcessorTest::new(|| InspectP::new(Arc::new(|_: &i64, _: Timestamp| {})))
        .input(numbers())
        .output(Expected::timed(timed(0..20)))
        .forbid_late_output()
        .run();
}

#[test]
fn a_flat_map_keeps_the_contract() {
    ProcessorTest::new(|| FlatMapP::new(Arc::new(|n: i64| std::iter::repeat_n(n, n as usize))))
        .input(numbers())
        .output(Expected::timed(
            (0..20).flat_map(|n| std::iter::repeat_n((n, at(n)), n as usize)),
        ))
        .forbid_late_output()
        .run();
}

#[test]
fn limits_and_samples_keep_the_contract() {
    ProcessorTest::new(|| LimitP::<i64>::new(7))
        .input(numbers())
        .output(Expected::timed(timed(0..7)))
        .run();
    ProcessorTest::new(|| SampleP::<i64>::new(NonZeroU64::new(4).unwrap()))
        .input(numbers())
        .output(Expected::timed(timed((0..20).step_by(4))))
        .run();
}

#[test]
fn several_outputs_keep_the_contract() {
    ProcessorTest::new(|| SplitP::new(Arc::new(|n: &i64| (n % 2) as usize)))
        .input(numbers())
        .output(Expected::timed(timed((0..20).step_by(2))))
        .output(Expected::timed(timed((1..20).step_by(2))))
        .forbid_late_output()
        .run();
    ProcessorTest::new(TeeP::<i64>::new)
        .input(numbers())
        .output(Expected::timed(timed(0..20)))
        .output(Expected::timed(timed(0..20)))
        .forbid_late_output()
        .run();
    let by_parity = |n: i64| {
        if n % 2 == 0 {
            Either::Left(n)
        } else {
            Either::Right(n.to_string())
        }
    };
    ProcessorTest::new(move || PartitionMapP::new(Arc::new(by_parity)))
        .input(numbers())
        .output(Expected::timed(timed((0..20).step_by(2))))
        .output(Expected::timed(
            (1..20).step_by(2).map(|n| (n.to_string(), at(n))),
        ))
        .forbid_late_output()
        .run();
}

#[test]
fn a_merge_keeps_the_contract_and_leaks_nothing() {
    let live = LiveCount::new();
    let counted = |n: i64| (Counted::new(n, &live), at(n));
    let records: Vec<_> = (0..20).map(counted).collect();
    ProcessorTest::new(MergeP::<Counted<i64>>::new)
        .input(
            TestInput::new()
                .records(records[..10].to_vec())
                .watermark(at(9)),
        )
        .input(
            TestInput::new()
                .records(records[10..].to_vec())
                .watermark(at(19)),
        )
        .output(Expected::timed_unordered(records.clone()))
        .forbid_late_output()
        .expect_no_leak(&live)
        .run();
}

#[test]
fn bad_records_keep_the_contract() {
    let small = |n: &i64| if n % 5 == 0 { Err("too round") } else { Ok(*n) };
    let map = move |policy| move || TryMapP::new(Arc::new(small), policy, raw_of);
    let good = || timed((0..20).filter(|n| n % 5 != 0));
    ProcessorTest::new(map(OnError::DeadLetter))
        .input(numbers())
        .output(Expected::timed(good()))
        .expect_dead_letters(4)
        .run();
    ProcessorTest::new(map(OnError::Drop))
        .input(numbers())
        .output(Expected::timed(good()))
        .run();
    ProcessorTest::new(map(OnError::Fail))
        .input(numbers())
        .output(Expected::<i64>::anything())
        .expect_error(ErrorCode::BadRecord)
        .run();
}

#[test]
fn makers_of_watermarks_keep_the_contract() {
    let records = || {
        TestInput::new()
            .values(0..10)
            .advance_clock(Duration::from_secs(30))
            .values(10..20)
    };
    let policy = WatermarkPolicy::out_of_order(Duration::from_secs(3));
    ProcessorTest::new(move || StampP::new(Arc::new(|n: &i64| at(*n)), policy))
        .input::<i64>(records())
        .output(Expected::timed(timed(0..20)))
        .makes_watermarks()
        .forbid_late_output()
        .run();
    ProcessorTest::new(move || {
        StampP::new(Arc::new(|n: &i64| (n % 5 != 0).then(|| at(*n))), policy)
    })
    .input::<i64>(records())
    .output(Expected::timed(timed((0..20).filter(|n| n % 5 != 0))))
    .makes_watermarks()
    .forbid_late_output()
    .expect_dead_letters(4)
    .run();
    ProcessorTest::new(move || NativeTimeP::<i64>::new(policy))
        .input(numbers())
        .output(Expected::timed(timed(0..20)))
        .makes_watermarks()
        .forbid_late_output()
        .run();
    ProcessorTest::new(|| ArrivalTimeP::<i64>::new(Duration::from_millis(10)))
        .input::<i64>(records())
        .output::<i64>((0..20).collect::<Vec<_>>())
        .makes_watermarks()
        .forbid_late_output()
        .run();
}

#[test]
fn state_and_timers_keep_the_contract() {
    type Out<'a, 'o> = KeyedContext<'a, 'o, Pair>;
    let on_record = |sum: &mut i64, key: &u8, (_, n): Pair, time: Timestamp, out: &mut Out| {
        *sum += n;
        (0..3).for_each(|_| out.emit((*key, *sum)));
        out.set_event_timer(time + Duration::from_secs(2));
        out.set_processing_timer(Duration::from_secs(1));
    };
    let on_timer = |sum: &mut i64, key: &u8, _: Timestamp, out: &mut Out| out.emit((*key, -*sum));
    let logic = Arc::new(KeyedLogic {
        key,
        create: || 0i64,
        on_record,
        on_timer,
    });
    ProcessorTest::new(move || StatefulMapP::new(Arc::clone(&logic)).ttl(Duration::from_secs(5)))
        .input(pairs())
        .output(Expected::<Pair>::check(|records| {
            let outputs = records.iter().filter(|((_, sum), _)| *sum > 0).count();
            if outputs == 57 {
                Ok(())
            } else {
                Err(format!("{outputs} outputs of records, not 57"))
            }
        }))
        .forbid_late_output()
        .run();
}

#[test]
fn a_stateful_flat_map_keeps_the_contract() {
    let logic = || {
        flat_map_stateful(
            key,
            || (),
            |_: &mut (), key: &u8, (_, n): Pair| vec![(*key, n); 3],
        )
    };
    ProcessorTest::new(move || StatefulMapP::new(Arc::new(logic())))
        .input(pairs())
        .output(Expected::timed((0..20).flat_map(|n| {
            std::iter::repeat_n((((n % 3) as u8, n), at(n)), 3)
        })))
        .forbid_late_output()
        .run();
}

#[test]
fn distinct_keeps_the_contract() {
    ProcessorTest::new(|| DistinctP::new(Arc::new(|n: &i64| n % 7)))
        .input(numbers())
        .output(Expected::timed(timed(0..7)))
        .forbid_late_output()
        .run();
    ProcessorTest::new(|| DistinctP::new(Arc::new(|n: &i64| n % 4)).within(Duration::from_secs(6)))
        .input(numbers())
        .output(Expected::timed(timed([
            0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19,
        ])))
        .forbid_late_output()
        .run();
}

#[test]
fn a_hash_join_keeps_the_contract() {
    let table: Vec<Pair> = (0..12).map(|n| ((n % 2) as u8, n)).collect();
    let expected: Vec<_> = (0..20)
        .flat_map(|n| {
            let key = (n % 3) as u8;
            let pair = ((key, n), at(n));
            table
                .iter()
                .filter(move |value| value.0 == key)
                .map(move |value| ((pair.0, *value), pair.1))
        })
        .collect();
    let logic = || inner_hash_join(key, key, |left: &Pair, right: &Pair| (*left, *right));
    ProcessorTest::new(move || HashJoinP::new(Arc::new(logic())))
        .input(pairs())
        .input::<Pair>(table)
        .priority(Ordinal::SECOND, Priority::FIRST)
        .output(Expected::timed(expected))
        .forbid_late_output()
        .run();
}

#[test]
fn a_broadcast_input_keeps_the_contract() {
    let logic = || BroadcastLogic {
        create: || 0i64,
        update: |sum: &mut i64, n: i64| *sum += n,
        apply: |n: i64, sum: &i64| (n, *sum),
    };
    ProcessorTest::new(move || BroadcastInputP::new(Arc::new(logic())))
        .input(numbers())
        .input::<i64>([1, 2, 3])
        .priority(Ordinal::SECOND, Priority::FIRST)
        .output(Expected::timed((0..20).map(|n| ((n, 6i64), at(n)))))
        .forbid_late_output()
        .run();
}

#[test]
fn an_interval_join_keeps_the_contract() {
    let interval = JoinInterval::between(Duration::from_secs(1), Duration::from_secs(4));
    let mut expected: Vec<((Pair, Option<Pair>), Timestamp)> = Vec::new();
    let right: Vec<Pair> = (0..20)
        .filter(|n| n % 4 != 3)
        .map(|n| ((n % 5) as u8, n))
        .collect();
    for n in 0..20i64 {
        let left = ((n % 3) as u8, n);
        let near = right
            .iter()
            .filter(|other| other.0 == left.0 && interval.holds(at(n), at(other.1)));
        let pairs: Vec<_> = near
            .map(|other| ((left, Some(*other)), at(n.max(other.1))))
            .collect();
        expected.extend(if pairs.is_empty() {
            vec![((left, None), at(n + 4))]
        } else {
            pairs
        });
    }
    let logic = || {
        outer_interval_join(key, key, |left: &Pair, right: Option<&Pair>| {
            (*left, right.copied())
        })
    };
    ProcessorTest::new(move || IntervalJoinP::new(Arc::new(logic()), interval))
        .input(pairs())
        .input(
            TestInput::new()
                .records(right.iter().map(|record| (*record, at(record.1))))
                .watermark(at(19)),
        )
        .output(Expected::timed_unordered(expected))
        .forbid_late_output()
        .run();
}

#[test]
fn the_collecting_sink_keeps_the_contract() {
    let collected = Arc::new(Mutex::new(Vec::new()));
    ProcessorTest::new(move || CollectSinkP::<i64>::new(Arc::clone(&collected)))
        .input(numbers())
        .run();
}
