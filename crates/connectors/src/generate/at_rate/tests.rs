//! Tests of due times and event times, and that restored attempts repeat no record.

use ardea_core::ManualClock;
use ardea_testkit::{Expected, SourceTest};
use proptest::prelude::*;

use super::*;
use crate::testing::{Driven, context};

/// Returns a generator and the control of its clock.
fn driven<F, B>(source: AtRate<u64, F, B>, instance: Instance) -> (Driven<u64>, ManualClock)
where
    F: Fn(u64) -> Option<u64> + Send + Sync + 'static,
    B: Boundedness,
{
    let hand = ManualClock::new();
    let mut context = context("s");
    context.clock = hand.clock();
    context.instance = instance;
    (Driven::new(source.build(), context).unwrap(), hand)
}

fn identity(
    rate: u64,
) -> AtRate<u64, impl Fn(u64) -> Option<u64> + Send + Sync + 'static, Unbounded> {
    at_rate(rate, |i| i)
}

#[test]
fn runs_that_count_from_the_same_moment_make_the_same_records() {
    let run = |began: u64| {
        let source = identity(1000).since(Timestamp::from_millis(50));
        let (mut driven, hand) = driven(source, Instance::ONLY);
        hand.advance(Duration::from_millis(began));
        driven.until_quiet();
        let at_once = driven.records.len();
        hand.advance(Duration::from_millis(100 - began));
        driven.until_quiet();
        (at_once, driven.records.clone())
    };
    let (before, all) = run(10);
    assert_eq!((before, all.len()), (0, 51), "it is waited for");
    assert_eq!(all[0], (0, Timestamp::from_millis(50)));
    assert_eq!(run(50).0, 1);
    assert_eq!(run(70), (21, all), "what was due comes at once");
}

#[test]
fn what_is_due_comes_with_the_time_it_was_due() {
    let (mut driven, hand) = driven(identity(1000), Instance::ONLY);
    driven.until_quiet();
    assert_eq!(driven.records, [(0, Timestamp::from_micros(0))]);
    hand.advance(Duration::from_millis(300));
    driven.until_quiet();
    assert_eq!(driven.records.len(), 301);
    assert_eq!(driven.records[300], (300, Timestamp::from_millis(300)));
    assert_eq!(
        driven.watermarks.last(),
        Some(&Watermark(Timestamp::from_millis(300)))
    );
}

#[test]
fn the_watermark_moves_on_between_records_that_are_far_apart() {
    let (mut driven, hand) = driven(identity(1), Instance::ONLY);
    driven.until_quiet();
    hand.advance(Duration::from_millis(500));
    driven.until_quiet();
    assert_eq!(driven.records.len(), 1);
    assert_eq!(
        driven.watermarks.last(),
        Some(&Watermark(Timestamp::from_millis(500)))
    );
}

#[test]
fn watermarks_keep_to_the_multiples_of_their_stride() {
    let source = identity(1000).watermark_stride(Duration::from_millis(10));
    let (mut driven, hand) = driven(source, Instance::ONLY);
    for _ in 0..100 {
        hand.advance(Duration::from_millis(1));
        driven.until_quiet();
    }
    assert!(
        (10..=12).contains(&driven.watermarks.len()),
        "{:?}",
        driven.watermarks
    );
    assert!(driven.watermarks.is_sorted());
}

#[test]
fn a_limit_ends_it_and_draining_does_too() {
    let (mut limited, hand) = driven(identity(1000).limit(10), Instance::ONLY);
    hand.advance(Duration::from_secs(1));
    limited
        .step()
        .map(|_| hand.advance(Duration::from_secs(1)))
        .unwrap();
    assert_eq!(limited.run().unwrap().records.len(), 10);
    let (_, endless, ..) = identity(1000).build().into_parts();
    assert!(!endless.supply(Instance::ONLY).unwrap().source().is_at_end());
    let emitted = SourceTest::supplied(endless)
        .drain_after(5)
        .emitted::<u64>();
    assert!(emitted.len() >= 5);
    let (_, none, ..) = identity(1000).limit(0).build().into_parts();
    assert!(none.supply(Instance::ONLY).unwrap().source().is_at_end());
}

#[test]
fn steps_in_the_generator_leave_due_times_and_the_watermark_alone() {
    let source = identity(1000).filter(|i| i % 100 == 0).map(|i| i + 1);
    let (mut driven, hand) = driven(source, Instance::ONLY);
    hand.advance(Duration::ZERO);
    driven.until_quiet();
    hand.advance(Duration::from_millis(250));
    driven.until_quiet();
    let at = |millis| Timestamp::from_millis(millis);
    assert_eq!(driven.records, [(1, at(0)), (101, at(100)), (201, at(200))]);
    assert_eq!(driven.watermarks.last(), Some(&Watermark(at(250))));
}

#[test]
fn a_generator_that_keeps_nothing_comes_to_its_end() {
    let (mut driven, hand) = driven(identity(1000).limit(5000).filter(|_| false), Instance::ONLY);
    driven.until_quiet();
    hand.advance(Duration::from_secs(10));
    assert!(driven.run().unwrap().records.is_empty());
}

#[test]
fn it_goes_on_with_the_same_start_and_what_was_due_meanwhile_comes_at_once() {
    let (mut before, hand) = driven(identity(10), Instance::ONLY);
    hand.advance(Duration::from_secs(100));
    before.until_quiet();
    hand.advance(Duration::from_secs(1));
    before.until_quiet();
    assert_eq!(before.records.len(), 11);
    let snapshot = before.snapshot().unwrap();
    let (mut after, hand) = driven(identity(10), Instance::ONLY);
    after.give_back(&snapshot).unwrap();
    hand.advance(Duration::from_secs(103));
    after.until_quiet();
    let at = |n: u64| Timestamp::from_millis(100_000 + 100 * n as i64);
    let expected: Vec<_> = (11..=30).map(|n| (n, at(n))).collect();
    assert_eq!(after.records, expected);
}

#[test]
fn a_rate_of_zero_fails_the_start() {
    let error = Driven::new(identity(0).build(), context("s"))
        .err()
        .expect("an error");
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
}

proptest! {
    #[test]
    fn no_record_is_older_than_the_watermark_before_it(
        rate in 1u64..2_000_000, waits in prop::collection::vec(0u64..3_000_000, 1..40)
    ) {
        let (mut driven, hand) = driven(identity(rate), Instance::ONLY);
        for wait in waits {
            hand.advance(Duration::from_nanos(wait));
            let (seen, promised) = (driven.records.len(), driven.watermarks.last().copied());
            let _ = driven.step().unwrap();
            for (_, time) in &driven.records[seen..] {
                prop_assert!(promised.is_none_or(|watermark| *time >= watermark.0));
            }
        }
    }
}

#[test]
fn the_contract_is_kept_in_every_schedule() {
    let (_, supplier, ..) = identity(700).limit(60).build().into_parts();
    SourceTest::supplied(supplier)
        .output(Expected::ordered(0..60u64))
        .survives()
        .run();
}
