//! Tests of sources made of functions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_core::{
    Chunk, Epoch, Error, ErrorCode, InstanceContext, ManualClock, Marker, Outbox, OutboxRuntime,
    Result, Timestamp, Watermark, WatermarkPolicy,
};
use ardea_testkit::{CapturedEpoch, Expected, ExternalHarness, SourceTest};

use super::*;
use crate::testing::{Driven, context, error_contains, stateful_context};

/// A builder of a source of `partitions` partitions with the numbers below `count`, which adds
/// `step` numbers per poll, or as many as have room if `step` is zero.
fn numbers(
    partitions: u32,
    count: u64,
    step: u64,
) -> SourceBuilder<Bounded, SourcePoll<u64, (u64, u64), u64>> {
    SourceBuilder::batch("numbers")
        .partitions(partitions)
        .open(|partition, from: Option<u64>| Ok((u64::from(partition), from.unwrap_or(0))))
        .poll(move |(partition, next), batch: &mut SourceBatch<'_, u64>| {
            let mut added = 0;
            while *next < count && (added < step || step == 0 && batch.has_room()) {
                batch.push(*partition * 1_000 + *next);
                *next += 1;
                added += 1;
            }
            Ok(if *next < count {
                PollStatus::Ready
            } else {
                PollStatus::End
            })
        })
        .offset(|(_, next)| *next)
}

fn all(partitions: u64, count: u64) -> Vec<u64> {
    let all = (0..partitions).flat_map(|partition| (0..count).map(move |n| partition * 1_000 + n));
    all.collect()
}

#[test]
fn the_contract_is_kept_in_every_schedule() {
    for step in [0, 1, 7] {
        SourceTest::of(numbers(3, 20, step).parallelism(2).build())
            .output(Expected::unordered(all(3, 20)))
            .survives()
            .run();
    }
    SourceTest::of(numbers(1, 50, 3).build())
        .output(Expected::ordered(0..50u64))
        .survives()
        .run();
}

#[test]
fn an_instance_without_partitions_ends_at_once() {
    let mut driven = Driven::new(numbers(1, 5, 0), stateful_context(1, 2)).unwrap();
    assert!(driven.run().unwrap().records.is_empty());
}

#[test]
fn records_beyond_the_room_are_emitted_before_the_epoch_ends_and_when_the_job_drains() {
    for drains in [false, true] {
        let (_, supplier, ..) = numbers(1, 100, 10).build().into_parts();
        let mut source = supplier.supply(Instance::ONLY).unwrap();
        source.init(&context("s")).unwrap();
        let (mut outbox, mut emitted) = (Outbox::new(1, 4), 0);
        let _ = source.complete(&mut outbox).unwrap();
        loop {
            emitted += outbox
                .take_chunk(0, Chunk::default)
                .map_or(0, |chunk| chunk.len());
            let progress = match drains {
                true => source.source().on_drain(&mut outbox),
                false => source.on_epoch(Epoch(1), &mut outbox),
            };
            if progress.unwrap().done {
                break;
            }
        }
        emitted += outbox
            .take_chunk(0, Chunk::default)
            .map_or(0, |chunk| chunk.len());
        assert_eq!(emitted, 10);
        assert!(!source.source().is_at_end());
    }
}

#[test]
fn draining_stops_it_without_losing_records() {
    let emitted = SourceTest::of(numbers(2, 1_000_000, 7).build())
        .drain_after(100)
        .emitted::<u64>();
    assert!(emitted.len() >= 100 && emitted.len().is_multiple_of(7));
}

#[test]
fn a_source_without_offset_says_that_it_cannot_be_restored() {
    let source: Source<u8, Unbounded> = SourceBuilder::stream("s")
        .open(|_, _: Option<()>| Ok(()))
        .poll(|(), _: &mut SourceBatch<'_, u8>| Ok(PollStatus::Idle))
        .build();
    let (_, supplier, ..) = source.into_parts();
    let what = supplier.supply(Instance::ONLY).unwrap().unsaved_state();
    assert!(what.unwrap().contains("`offset`"));
}

/// Returns the state of the only instance of a source after 30 records.
fn state_of(source: SourceBuilder<Bounded, SourcePoll<u64, (u64, u64), u64>>) -> CapturedEpoch {
    let (_, supplier, ..) = source.build().into_parts();
    let mut before = ExternalHarness::begin(&supplier, "job", Instance::ONLY, None);
    before.read(30, &mut Vec::<u64>::new());
    before.end_epoch(Epoch(1), true)
}

fn restored<T, B>(
    source: impl Into<Source<T, B>>,
    state: &CapturedEpoch,
) -> Result<ExternalHarness> {
    let (_, supplier, ..) = source.into().into_parts();
    ExternalHarness::try_begin(&supplier, "job", Instance::ONLY, Some(state))
}

#[test]
fn partitions_may_be_added_and_only_ended_ones_may_be_removed() {
    let state = state_of(numbers(3, 100, 10));
    let error = restored(numbers(2, 100, 10), &state).map(drop).unwrap_err();
    assert!(error.is_permanent());
    assert!(
        error_contains(&error, &["partition 2", "only 2 partitions"]),
        "{error}"
    );
    let mut rest = Vec::<u64>::new();
    restored(numbers(4, 100, 10), &state)
        .unwrap()
        .read(1_000, &mut rest);
    assert_eq!(rest.len(), 400 - 30);

    let ended = state_of(numbers(3, 10, 10));
    let mut rest = Vec::<u64>::new();
    assert!(
        restored(numbers(2, 10, 10), &ended)
            .unwrap()
            .read(1, &mut rest)
    );
    assert!(rest.is_empty());
}

#[test]
fn an_offset_of_another_type_is_refused_with_its_partition() {
    let state = state_of(numbers(1, 100, 10));
    let other: Source<u64, Bounded> = SourceBuilder::batch("numbers")
        .open(|_, _: Option<String>| Ok(()))
        .poll(|(), _: &mut SourceBatch<'_, u64>| Ok(PollStatus::End))
        .offset(|()| String::new())
        .build();
    let error = restored(other, &state).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadRecord);
    assert!(error.is_permanent() && error.hint_text().is_some());
    assert!(
        error_contains(&error, &["offset of partition 0", "invalid type"]),
        "{error}"
    );
}

#[test]
fn an_error_names_the_partition_and_has_the_cause() {
    let failing = |opens: bool| {
        let source = SourceBuilder::batch("orders")
            .partitions(2)
            .open(move |partition, _: Option<u64>| match opens {
                true => Ok(partition),
                false => Err("no such log".into()),
            })
            .poll(|partition, batch: &mut SourceBatch<'_, u32>| {
                batch.push(*partition);
                match *partition {
                    0 => Ok(PollStatus::End),
                    _ => Err(std::io::Error::other("bad sector").into()),
                }
            });
        let mut driven = Driven::<u32>::start(source);
        driven.run().map(drop).unwrap_err()
    };
    let (opened, polled) = (failing(false), failing(true));
    assert!(
        error_contains(&opened, &["ARD-202: cannot open partition 0: no such log"]),
        "{opened}"
    );
    assert!(
        error_contains(&polled, &["ARD-202: cannot read partition 1: bad sector; "]),
        "{polled}"
    );
}

/// Returns a context of a job with state, and its clock.
fn timed_context() -> (InstanceContext, ManualClock) {
    let hand = ManualClock::new();
    let context = InstanceContext {
        clock: hand.clock(),
        ..stateful_context(0, 1)
    };
    (context, hand)
}

#[test]
fn a_transient_error_of_one_partition_delays_no_other_and_loses_nothing() {
    let failures = Arc::new(Mutex::new(3));
    let source = SourceBuilder::batch("orders")
        .partitions(2)
        .open(|partition, _: Option<u64>| Ok((partition, 0)))
        .poll(move |(partition, next), batch: &mut SourceBatch<'_, u32>| {
            let mut left = failures.lock().unwrap();
            if *partition == 0 && *left > 0 {
                *left -= 1;
                return Err(Error::new(ErrorCode::Network, "away").transient().into());
            }
            batch.push(*partition * 10 + *next);
            *next += 1;
            Ok(if *next < 3 {
                PollStatus::Ready
            } else {
                PollStatus::End
            })
        });
    let (context, hand) = timed_context();
    let mut driven = Driven::new(source, context).unwrap();
    driven.run_until_records(3).until_quiet();
    assert_eq!(driven.values(), [&10, &11, &12]);
    for _ in 0..3 {
        hand.advance(Duration::from_millis(400));
        driven.until_quiet_or_done();
    }
    assert_eq!(driven.values(), [&10, &11, &12, &0, &1, &2]);
}

/// Scripts of partitions: each poll emits one record with this time, or none.
type Script = Arc<Mutex<Vec<Vec<Option<i64>>>>>;

fn scripted(script: &Script) -> SourceBuilder<Unbounded, SourcePoll<i64, u32, u64>> {
    let script = Arc::clone(script);
    SourceBuilder::stream("scripted")
        .partitions(2)
        .open(|partition, _: Option<u64>| Ok(partition))
        .poll(move |partition, batch: &mut SourceBatch<'_, i64>| {
            let mut script = script.lock().unwrap();
            Ok(match script[*partition as usize].pop().flatten() {
                Some(secs) => {
                    batch.push_at(secs, Timestamp::from_secs(secs));
                    PollStatus::Ready
                }
                None => PollStatus::Idle,
            })
        })
        .event_time(WatermarkPolicy::out_of_order(Duration::from_secs(1)))
        .offset(|_| 0)
}

#[test]
fn the_watermark_is_that_of_the_slowest_partition_that_is_not_idle() {
    let script: Script = Arc::new(Mutex::new(vec![vec![Some(100)], vec![Some(50)]]));
    let (context, hand) = timed_context();
    let mut driven = Driven::new(scripted(&script), context).unwrap();
    driven.until_quiet();
    let at = |secs| Watermark(Timestamp::from_secs(secs));
    assert_eq!(driven.watermarks, [at(49)]);
    for _ in 0..30 {
        script.lock().unwrap()[0].push(Some(100));
        hand.advance(Duration::from_millis(500));
        driven.until_quiet();
    }
    assert_eq!(driven.watermarks, [at(49), at(99)], "the other one is idle");

    let snapshot = driven.snapshot().unwrap();
    let mut again = Driven::new(scripted(&script), timed_context().0).unwrap();
    again.give_back(&snapshot).unwrap();
    again.until_quiet();
    assert_eq!(again.watermarks, [at(49)], "event times are restored");
}

#[test]
fn a_source_whose_partitions_are_all_idle_says_so_repeatedly() {
    let script: Script = Arc::new(Mutex::new(vec![vec![Some(1)], vec![Some(1)]]));
    let (_, supplier, ..) = scripted(&script).build().into_parts();
    let (context, hand) = timed_context();
    let mut source = supplier.supply(Instance::ONLY).unwrap();
    source.init(&context).unwrap();
    let (mut outbox, mut idle) = (Outbox::new(1, 64), 0);
    for _ in 0..60 {
        let _ = source.complete(&mut outbox).unwrap();
        outbox.take_chunk(0, Chunk::default);
        while let Some(marker) = outbox.take_marker(0) {
            idle += u32::from(marker == Marker::Idle);
        }
        hand.advance(Duration::from_millis(500));
    }
    assert!((2..=3).contains(&idle), "{idle}");
}

#[test]
fn a_pause_of_all_partitions_is_waited_for() {
    let source: Source<u8, Unbounded> = SourceBuilder::stream("s")
        .partitions(2)
        .open(|partition, _: Option<u64>| Ok(partition))
        .poll(|partition, _: &mut SourceBatch<'_, u8>| {
            Ok(PollStatus::IdleFor(Duration::from_secs(
                5 + u64::from(*partition),
            )))
        })
        .build();
    let (_, supplier, ..) = source.into_parts();
    let (context, hand) = timed_context();
    let mut source = supplier.supply(Instance::ONLY).unwrap();
    source.init(&context).unwrap();
    let mut outbox = Outbox::new(1, 64);
    for (seconds, wakes_at) in [(0, 5), (5, 6), (1, 10)] {
        hand.advance(Duration::from_secs(seconds));
        assert!(!source.complete(&mut outbox).unwrap().made);
        assert_eq!(outbox.take_wake_at(), Some(Duration::from_secs(wakes_at)));
    }
}

/// A reader of more records than have room, with the last of which it ends.
struct AllAtOnce(u64);

impl SourceReader for AllAtOnce {
    type Record = u64;

    fn poll(&mut self, batch: &mut SourceBatch<'_, u64>) -> ardea_core::Result<PollStatus> {
        (0..self.0).for_each(|number| batch.push(number));
        Ok(PollStatus::End)
    }
}

#[test]
fn a_reader_that_ends_with_more_records_than_room_emits_all_of_them_once() {
    let mut driven = Driven::start(SourceBuilder::batch("s").reader(|_| AllAtOnce(200)));
    let values: Vec<u64> = driven
        .run()
        .unwrap()
        .values()
        .into_iter()
        .copied()
        .collect();
    assert_eq!(values, (0..200).collect::<Vec<_>>());
}
