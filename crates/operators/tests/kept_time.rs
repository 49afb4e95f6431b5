//! Tests of the state of instances (watermarks and counters) across failures.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Epoch, Guarantee, Instance, InstanceContext, ManualClock, Marker, Processor, RestoredState,
    SnapshotRequest, SnapshotWriter, StateChunk, Watermark,
};
use ardea_operators::*;
use ardea_testkit::{Expected, Harness, ProcessorTest, TestInput, Timestamp};

fn at(n: i64) -> Timestamp {
    Timestamp::from_secs(n)
}

/// Returns forty numbers that are out of order by up to five.
fn numbers() -> Vec<i64> {
    (0..40).map(|n| n - n * n % 6).collect()
}

fn input() -> TestInput<i64> {
    let numbers = numbers();
    TestInput::new()
        .values(numbers[..15].iter().copied())
        .barrier()
        .advance_clock(Duration::from_secs(4))
        .values(numbers[15..30].iter().copied())
        .barrier()
        .values(numbers[30..].iter().copied())
}

#[test]
fn stamps_are_the_same_and_no_promise_is_taken_back() {
    let expected = || numbers().into_iter().map(|n| (n, at(n)));
    for stride in [0, 7] {
        let policy = WatermarkPolicy::in_order().stride(Duration::from_secs(stride));
        ProcessorTest::new(move || StampP::new(Arc::new(|n: &i64| at(*n)), policy))
            .keyed_input(input(), |n: &i64| *n)
            .output(Expected::timed(expected()))
            .makes_watermarks()
            .survives()
            .run();
    }
    let timed = TestInput::new()
        .records(expected().take(20))
        .barrier()
        .records(expected().skip(20));
    ProcessorTest::new(|| NativeTimeP::<i64>::new(WatermarkPolicy::in_order()))
        .input(timed)
        .output(Expected::timed(expected()))
        .makes_watermarks()
        .survives()
        .run();
}

#[test]
fn the_time_of_day_is_no_earlier_than_in_another_life() {
    ProcessorTest::new(|| ArrivalTimeP::<i64>::new(Duration::from_secs(1)))
        .input(input())
        .output(Expected::ordered(numbers()))
        .forbid_late_output()
        .makes_watermarks()
        .survives()
        .run();
}

#[test]
fn recorded_events_go_on_happening() {
    let recorded = |n: &i64| at(*n);
    ProcessorTest::new(move || ReplayP::new(Arc::new(recorded), 3.0))
        .input(input())
        .output(Expected::ordered(numbers()))
        .survives()
        .run();
}

#[test]
fn a_limit_stays_a_limit_and_a_sample_goes_on() {
    for limit in [0, 7, 25, 99] {
        ProcessorTest::new(move || LimitP::<i64>::new(limit))
            .input(input())
            .output(Expected::ordered(
                numbers().into_iter().take(limit as usize),
            ))
            .survives()
            .run();
    }
    for every in [1, 4, 11] {
        let nth = NonZeroU64::new(every).unwrap();
        ProcessorTest::new(move || SampleP::<i64>::new(nth))
            .input(input())
            .output(Expected::ordered(
                numbers().into_iter().step_by(every as usize),
            ))
            .survives()
            .run();
    }
}

fn instance(processor: impl Processor + 'static, index: u32, parallelism: u32) -> Harness {
    let hand = ManualClock::new();
    let context = InstanceContext {
        instance: Instance { index, parallelism },
        guarantee: Guarantee::ExactlyOnce,
        clock: hand.clock(),
        ..InstanceContext::detached("tested")
    };
    Harness::with_context(processor, 1, 1, context, hand).unwrap()
}

/// Adds the whole state of an instance.
fn hand_over(from: &mut Harness, chunk: &mut StateChunk) {
    from.barrier(Epoch(1)).unwrap();
    from.step(|p, _| p.state().take_snapshot(SnapshotRequest::full(Epoch(1))))
        .unwrap();
    let mut write = || {
        from.step(|p, _| {
            p.state()
                .write_snapshot(&mut SnapshotWriter::new(chunk, usize::MAX))
        })
    };
    while !write().unwrap().done {}
}

fn take_over(to: &mut Harness, chunk: &StateChunk) {
    let (instance, mut position) = (to.context().instance, 0);
    let mut state = RestoredState::new(chunk, &mut position, instance, usize::MAX);
    to.step(|p, _| p.state().restore(&mut state)).unwrap();
    while !to
        .step(|p, _| p.state().on_restored(Epoch(1)))
        .unwrap()
        .done
    {}
    to.step(|p, out| p.on_wake(out)).unwrap();
}

fn watermarks(of: &mut Harness) -> Vec<Watermark> {
    let marks = of.markers(0).into_iter().filter_map(|marker| match marker {
        Marker::Watermark(watermark) => Some(watermark),
        _ => None,
    });
    marks.collect()
}

#[test]
fn promises_are_said_again_and_where_instances_come_together_it_is_the_least_of_them() {
    let stamp = || StampP::new(Arc::new(|n: &i64| at(*n)), WatermarkPolicy::in_order());
    let mut chunk = StateChunk::default();
    for (index, reached) in [(0, 30), (1, 20)] {
        let mut old = instance(stamp(), index, 2);
        old.push(0, reached, Timestamp::MIN);
        old.read(0).unwrap();
        assert_eq!(watermarks(&mut old), [Watermark(at(reached))]);
        hand_over(&mut old, &mut chunk);
    }
    for (index, parallelism, promise) in [(0, 2, 30), (1, 2, 20), (0, 1, 20), (2, 3, 20)] {
        let mut new = instance(stamp(), index, parallelism);
        take_over(&mut new, &chunk);
        assert_eq!(watermarks(&mut new), [Watermark(at(promise))]);
        new.push(0, 10i64, Timestamp::MIN);
        new.read(0).unwrap();
        assert_eq!(watermarks(&mut new), []);
    }
}
