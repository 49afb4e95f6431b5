//! Tests that compare keyed operators with most keys on disk to the same operators in memory.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::count;
use ardea_core::{ErrorCode, Processor, Result, StateCodec, Timestamp};
use ardea_testkit::{Expected, ProcessorTest, TestInput};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{DistinctP, KeyedContext, KeyedLogic, StatefulMapP};
use crate::test_driver::{Drive, at};
use crate::{FoldOne, RollingP};
use ardea_state::StateCodecs;
use ardea_state::testing::MemoryDisk;

/// A JSON codec.
struct Json;

impl<T: Serialize + DeserializeOwned> StateCodec<T> for Json {
    fn put(&self, value: &T, out: &mut Vec<u8>) -> Result<()> {
        serde_json::to_writer(out, value).unwrap();
        Ok(())
    }

    fn get(&self, bytes: &[u8]) -> Result<T> {
        Ok(serde_json::from_slice(bytes).unwrap())
    }
}

fn kept<S: Serialize + DeserializeOwned>() -> StateCodecs<u8, S> {
    StateCodecs::new(Arc::new(Json), Arc::new(Json))
}

type Out<'a, 'o> = KeyedContext<'a, 'o, (u8, i64)>;
type Record = (u8, i64);

/// Creates a stateful map that sets and clears timers and clears state, as each record demands.
pub(super) fn stateful(ttl: Option<Duration>) -> impl Processor {
    let logic = KeyedLogic {
        key: |record: &Record| record.0,
        create: || 0i64,
        on_record: |sum: &mut i64, key: &u8, (_, n): Record, time: Timestamp, out: &mut Out| {
            *sum += n;
            out.emit((*key, *sum));
            let later = Duration::from_secs(n.unsigned_abs());
            match n % 6 {
                0 => out.set_event_timer(time + later),
                1 => out.set_processing_timer(later),
                2 => out.clear_state(),
                3 => out.clear_processing_timers(),
                4 => out.clear_event_timer(time + later),
                _ => out.set_event_timer(time + 2 * later),
            }
        },
        on_timer: |sum: &mut i64, key: &u8, _: Timestamp, out: &mut Out| {
            *sum += 1;
            out.emit((*key, 1_000 + *sum));
        },
    };
    let step = StatefulMapP::new(Arc::new(logic)).with_codecs(kept());
    match ttl {
        Some(ttl) => step.ttl(ttl),
        None => step,
    }
}

fn distinct(span: Option<Duration>) -> impl Processor {
    let step = DistinctP::new(Arc::new(|record: &Record| record.0)).with_codecs(kept());
    match span {
        Some(span) => step.within(span),
        None => step,
    }
}

fn rolling(ttl: Option<Duration>) -> impl Processor {
    let fold = FoldOne::new(|record: &Record| record.0, count());
    let step = RollingP::new(Arc::new(fold)).with_codecs(kept());
    match ttl {
        Some(ttl) => step.ttl(ttl),
        None => step,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Records(Vec<Record>),
    /// Advances event time by this number of seconds and sends a watermark.
    Watermark(i64),
    /// Advances the clock.
    Advance(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let records = prop::collection::vec((0u8..40, 0i64..12), 1..30);
    let step = prop_oneof![
        4 => records.prop_map(Step::Records),
        2 => (1i64..10).prop_map(Step::Watermark),
        1 => (1u64..6).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 0..40)
}

fn script(steps: &[Step], chunk_room: usize) -> Drive {
    let (mut drive, mut now) = (Drive::with_room(chunk_room), 0);
    for step in steps {
        drive = match step {
            Step::Records(records) => {
                drive.records(records.iter().map(|r| (*r, at(now))).collect::<Vec<_>>())
            }
            Step::Watermark(by) => {
                now += by;
                drive.watermark(at(now))
            }
            Step::Advance(by) => drive.advance(Duration::from_secs(*by)),
        };
    }
    drive
}

/// Returns the outputs in sorted order, as the order of equal due times is undefined.
fn outcome<U: Ord + Clone + Send + 'static>(
    drive: Drive,
    step: &mut dyn Processor,
) -> Vec<(U, Timestamp)> {
    let outcome = drive.run::<U>(step);
    outcome.assert_in_time();
    let mut records = outcome.records();
    records.sort();
    records
}

fn on_disk(mut drive: Drive) -> Drive {
    drive.context.local = Some(Arc::new(MemoryDisk::default()));
    drive
}

proptest! {
    #[test]
    fn steps_do_the_same_wherever_their_keys_lie(
        steps in steps(),
        ttl in prop::option::of((1u64..20).prop_map(Duration::from_secs)),
        room in 1usize..100,
    ) {
        let drive = || script(&steps, room);
        let (mut here, mut there) = (stateful(ttl), stateful(ttl));
        prop_assert_eq!(
            outcome::<Record>(drive(), &mut here),
            outcome::<Record>(on_disk(drive()), &mut there)
        );
        let (mut here, mut there) = (distinct(ttl), distinct(ttl));
        prop_assert_eq!(
            outcome::<Record>(drive(), &mut here),
            outcome::<Record>(on_disk(drive()), &mut there)
        );
        let (mut here, mut there) = (rolling(ttl), rolling(ttl));
        prop_assert_eq!(
            outcome::<(u8, u64)>(drive(), &mut here),
            outcome::<(u8, u64)>(on_disk(drive()), &mut there)
        );
    }
}

#[test]
fn only_what_has_all_its_keys_in_memory_begins_before_they_are_back() {
    for (drive, begins) in [(Drive::default(), true), (on_disk(Drive::default()), false)] {
        let steps: [Box<dyn Processor>; 3] = [
            Box::new(stateful(None)),
            Box::new(distinct(None)),
            Box::new(rolling(None)),
        ];
        for mut step in steps {
            step.init(&drive.context).unwrap();
            assert_eq!(step.state().partitions().enable_lazy_restore(10), begins);
        }
    }
}

#[test]
fn a_full_disk_fails_the_step_with_its_reason() {
    let mut step = rolling(None);
    let mut drive = Drive::default();
    for batch in 0..4u8 {
        drive = drive.records((0..50u8).map(|n| ((n + 50 * batch, 0i64), at(0))));
    }
    drive.context.local = Some(Arc::new(MemoryDisk {
        is_full: true,
        ..MemoryDisk::default()
    }));
    let error = drive.try_run::<(u8, u64)>(&mut step).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DiskFull);
}

#[test]
fn state_size_is_reported_by_place() {
    let mut step = rolling(None);
    let mut drive = on_disk(Drive::default());
    for batch in 0..4u8 {
        drive = drive.records((0..50u8).map(|n| ((n + 50 * batch, 0i64), at(0))));
    }
    let metrics = Arc::clone(&drive.context.metrics);
    drive.run::<(u8, u64)>(&mut step);
    let told = metrics.snapshot();
    assert_eq!(told.state_keys + told.state_disk_keys, 200);
    assert!(
        told.state_keys > 0 && told.state_disk_keys > 100,
        "{told:?}"
    );
    assert!(
        told.state_bytes > 0 && told.state_disk_bytes > 1_000,
        "{told:?}"
    );
}

/// Returns ninety records of thirty keys in order of time, with watermarks and ends of epochs
/// between them.
fn records() -> impl Iterator<Item = (Record, Timestamp)> {
    (0..90i64).map(|n| (((n * 7 % 30) as u8, n % 12), at(n)))
}

fn survives<U, P>(make: impl Fn() -> P + 'static)
where
    U: Ord + Clone + Debug + Send + 'static,
    P: Processor + 'static,
{
    let (mut drive, mut input) = (Drive::default(), TestInput::new());
    for part in 0..6 {
        let some: Vec<_> = records().skip(15 * part).take(15).collect();
        let mark = at(15 * part as i64 + 8);
        drive = drive.records(some.clone()).watermark(mark);
        input = input.records(some).barrier().watermark(mark).barrier();
    }
    let expected = outcome::<U>(drive, &mut make());
    ProcessorTest::new(make)
        .keyed_input(input, |record: &Record| record.0)
        .output(Expected::timed_unordered(expected))
        .local_store(Arc::new(MemoryDisk::default()))
        .survives()
        .run();
}

#[test]
fn spilled_state_survives_failures_and_hand_over() {
    survives::<Record, _>(|| stateful(None));
    survives::<Record, _>(|| stateful(Some(Duration::from_secs(9))));
    survives::<Record, _>(|| distinct(None));
    survives::<Record, _>(|| distinct(Some(Duration::from_secs(9))));
    survives::<(u8, u64), _>(|| rolling(None));
    survives::<(u8, u64), _>(|| rolling(Some(Duration::from_secs(9))));
}
