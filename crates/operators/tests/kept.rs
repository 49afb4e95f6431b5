//! Tests of keyed operators across failures and rescales.
//!
//! After a failure, results of different keys may be in any order, as restored keys continue first.

use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::{average, count};
use ardea_core::Processor;
use ardea_operators::*;
use ardea_testkit::{Expected, Harness, ProcessorTest, TestInput, Timestamp};

mod json;

use json::json;

type Pair = (u8, i64);

fn at(n: i64) -> Timestamp {
    Timestamp::from_secs(n)
}

fn key(pair: &Pair) -> u8 {
    pair.0
}

/// Returns thirty pairs of three keys in order of time, with watermarks and the ends of two epochs
/// between them.
fn pairs() -> TestInput<Pair> {
    let pair = |n: i64| (((n * n % 5) as u8, n), at(n));
    TestInput::new()
        .records((0..10).map(pair))
        .watermark(at(9))
        .barrier()
        .records((10..20).map(pair))
        .watermark(at(15))
        .records((20..30).map(pair))
        .barrier()
        .watermark(at(29))
}

/// Returns the outputs of a processor that runs without failure.
fn expected<U: Send + 'static>(processor: impl Processor + 'static) -> Vec<(U, Timestamp)> {
    let mut whole = Harness::new(processor, 1, 1);
    let pair = |n: i64| (((n * n % 5) as u8, n), at(n));
    let mut read = |from: i64, to: i64, mark: i64| {
        whole.push_all(0, (from..to).map(pair));
        whole.read(0).unwrap();
        whole.watermark(at(mark)).unwrap();
    };
    read(0, 10, 9);
    read(10, 20, 15);
    read(20, 30, 29);
    whole.edge_done(0).unwrap();
    whole.watermark(Timestamp::MAX).unwrap();
    whole.complete().unwrap();
    whole.take::<U>(0)
}

#[test]
fn a_map_with_state_goes_on_with_it() {
    let logic = Arc::new(map_stateful(
        key,
        Vec::new,
        |seen: &mut Vec<i64>, key: &u8, (_, n): Pair| {
            seen.push(n);
            (*key, seen.iter().sum::<i64>())
        },
    ));
    let make = move || StatefulMapP::new(Arc::clone(&logic)).with_codecs(json());
    ProcessorTest::new(make.clone())
        .keyed_input(pairs(), key)
        .output(Expected::timed_unordered(expected::<Pair>(make())))
        .forbid_late_output()
        .survives()
        .run();
}

#[test]
fn event_timers_and_removed_keys_come_back_as_they_were() {
    type Out<'a, 'o> = KeyedContext<'a, 'o, Pair>;
    let on_record = |sum: &mut i64, key: &u8, (_, n): Pair, time: Timestamp, out: &mut Out| {
        *sum += n;
        out.emit((*key, *sum));
        match n % 4 {
            0 => out.set_event_timer(time + Duration::from_secs(3)),
            1 => out.clear_event_timer(time + Duration::from_secs(2)),
            2 => out.set_event_timer(time + Duration::from_secs(40)),
            _ => {}
        }
    };
    let on_timer = |sum: &mut i64, key: &u8, time: Timestamp, out: &mut Out| {
        out.emit((*key, -*sum));
        if time < at(30) && *sum % 3 == 0 {
            out.clear_state();
        }
    };
    let logic = Arc::new(KeyedLogic {
        key,
        create: || 0i64,
        on_record,
        on_timer,
    });
    for ttl in [None, Some(Duration::from_secs(4))] {
        let logic = Arc::clone(&logic);
        let make = move || {
            let map = StatefulMapP::new(Arc::clone(&logic)).with_codecs(json());
            match ttl {
                Some(ttl) => map.ttl(ttl),
                None => map,
            }
        };
        ProcessorTest::new(make.clone())
            .keyed_input(pairs(), key)
            .output(Expected::timed_unordered(expected::<Pair>(make())))
            .survives()
            .run();
    }
}

#[test]
fn processing_timers_fire_when_their_time_of_day_comes() {
    type Out<'a, 'o> = KeyedContext<'a, 'o, Pair>;
    let logic = Arc::new(KeyedLogic {
        key,
        create: || 0i64,
        on_record: |sum: &mut i64, _: &u8, (_, n): Pair, _: Timestamp, out: &mut Out| {
            *sum += n;
            out.set_processing_timer(Duration::from_secs(10 + n as u64));
        },
        on_timer: |sum: &mut i64, key: &u8, time: Timestamp, out: &mut Out| {
            out.emit((*key, *sum * 1_000 + time.as_millis() / 1_000));
        },
    });
    let input = TestInput::new()
        .values([(1, 1), (2, 2), (1, 3)])
        .advance_clock(Duration::from_secs(5))
        .values([(2, 4)])
        .advance_clock(Duration::from_secs(7))
        .advance_clock(Duration::from_secs(1))
        .values([(3, 30)])
        .advance_clock(Duration::from_secs(10));
    ProcessorTest::new(move || StatefulMapP::new(Arc::clone(&logic)).with_codecs(json()))
        .keyed_input(input, key)
        .output::<Pair>(Expected::unordered([
            (1, 4_011),
            (2, 6_012),
            (1, 4_013),
            (2, 6_019),
        ]))
        .survives()
        .run();
}

#[test]
fn distinct_lets_no_key_pass_again() {
    let make = move || DistinctP::new(Arc::new(key)).with_codecs(json());
    ProcessorTest::new(make)
        .keyed_input(pairs(), key)
        .output(Expected::timed(expected::<Pair>(make())))
        .survives()
        .run();
    let make = move || {
        DistinctP::new(Arc::new(key))
            .within(Duration::from_secs(6))
            .with_codecs(json())
    };
    ProcessorTest::new(make)
        .keyed_input(pairs(), key)
        .output(Expected::timed(expected::<Pair>(make())))
        .survives()
        .run();
}

#[test]
fn rolling_aggregates_roll_on() {
    let counts = || Arc::new(FoldOne::new(key, count()));
    let make = move || RollingP::new(counts()).with_codecs(json());
    ProcessorTest::new(make)
        .keyed_input(pairs(), key)
        .output(Expected::timed_unordered(expected::<(u8, u64)>(make())))
        .survives()
        .run();
    let averages = || Arc::new(FoldOne::new(key, average(|pair: &Pair| pair.1 as f64)));
    let make = move || {
        RollingP::new(averages())
            .ttl(Duration::from_secs(3))
            .with_codecs(json())
    };
    ProcessorTest::new(make)
        .keyed_input(pairs(), key)
        .output(Expected::timed_unordered(expected::<(u8, Option<f64>)>(
            make(),
        )))
        .survives()
        .run();
}

#[test]
fn state_without_a_serializer_is_reported() {
    let distinct = || DistinctP::new(Arc::new(key));
    assert!(distinct().unsaved_state().is_some());
    assert_eq!(distinct().with_codecs(json()).unsaved_state(), None);
    let rolling = RollingP::new(Arc::new(FoldOne::new(key, count())));
    assert!(rolling.unsaved_state().is_some());
}
