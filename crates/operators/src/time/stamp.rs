//! Event time extracted from records.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, MicroBatch, OnError, Ordinal, Outbox, Processor,
    Progress, RecordGuard, RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape,
    Timestamp, Watermark,
};

use crate::forward::{pass_front, passable, remove_at};
use crate::record_errors::RecordErrors;
use crate::time::emitter::WatermarkEmitter;
use crate::time::{EventTime, WatermarkPolicy};

/// Assigns each record the event time `time(record)` and generates watermarks from these times.
///
/// `time` returns a [`Timestamp`], or an `Option` or `Result` of one. A record without a valid time
/// is handled by the [`OnError`] policy; the default is dead letters. These are not valid: an
/// error, `None`, a panic in `time`, the minimum and maximum time, and a time further ahead than
/// the policy's [`max_ahead`](WatermarkPolicy::max_ahead).
///
/// Watermarks follow the [`WatermarkPolicy`] after each chunk and replace upstream watermarks. A
/// silent input is declared idle. Works in place: the column of times is rewritten and the chunk
/// forwarded.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ardea_core::{Chunk, Inbox, Marker, Ordinal, Outbox, OutboxRuntime, Processor};
/// use ardea_core::{Rows, Timestamp, Watermark};
/// use ardea_operators::{StampP, WatermarkPolicy};
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([(12i64, Timestamp::MIN), (10, Timestamp::MIN)])));
/// let mut outbox = Outbox::new(1, 16);
///
/// let policy = WatermarkPolicy::out_of_order(Duration::from_secs(5));
/// let mut stamp = StampP::new(Arc::new(|secs: &i64| Timestamp::from_secs(*secs)), policy);
/// stamp.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
///
/// let mut chunk = outbox.take_chunk(0, Chunk::default).unwrap();
/// assert_eq!(chunk.rows::<i64>()?.times(), [Timestamp::from_secs(12), Timestamp::from_secs(10)]);
/// assert_eq!(outbox.take_marker(0), Some(Marker::Watermark(Watermark(Timestamp::from_secs(7)))));
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct StampP<T, R, F> {
    time: Arc<F>,
    bad: RecordErrors<T>,
    emitter: WatermarkEmitter,
    /// Batch indexes of the records without a valid time. Empty between calls.
    rejected: Vec<usize>,
    records: PhantomData<fn(T) -> R>,
}

impl<T, R, F> StampP<T, R, F>
where
    R: EventTime,
    F: Fn(&T) -> R,
{
    /// Creates an operator with times by `time`, which instances share. Bad records become dead
    /// letters without bytes.
    pub fn new(time: Arc<F>, policy: WatermarkPolicy) -> Self {
        StampP {
            time,
            bad: RecordErrors::new(OnError::DeadLetter, |_| Vec::new()),
            emitter: WatermarkEmitter::new(policy),
            rejected: Vec::new(),
            records: PhantomData,
        }
    }

    /// Sets the error policy for records without a valid time. `raw` returns the bytes of a record
    /// for a dead letter; use [`raw_of`](crate::raw_of) for records without a byte form.
    pub fn on_error(mut self, policy: OnError, raw: fn(&T) -> Vec<u8>) -> Self {
        self.bad = RecordErrors::new(policy, raw);
        self
    }
}

impl<T, R, F> StampP<T, R, F>
where
    T: Send + 'static,
    R: EventTime,
    F: Fn(&T) -> R,
{
    /// Stamps the first `count` records, collects those without a valid time, and returns the
    /// latest time.
    fn stamp(&mut self, input: Ordinal, inbox: &mut Inbox, count: usize) -> Result<Timestamp> {
        let position = inbox.position();
        let (records, times) = inbox.rows::<T>()?.values_and_times_mut();
        let (records, times) = (&records[..count], &mut times[..count]);
        let mut bound = self.emitter.bound();
        let mut from = 0;
        loop {
            let (time, rest, limit) = (&*self.time, &records[from..], bound.limit());
            let run = self
                .bad
                .catch(|| Ok(stamp_run(time, rest, &mut times[from..], limit)))?;
            let (stopped, time) = match run {
                Ok(Run::Through(highest)) => {
                    bound.advance(highest);
                    return Ok(bound.highest());
                }
                Ok(Run::Stopped(index, time)) => (index, time.map_err(|r| r.to_string())),
                Err(panic) => (panic.index, Err(panic.reason)),
            };
            let index = from + stopped;
            let before = times[from..index].iter().max();
            bound.advance(before.copied().unwrap_or(Timestamp::MIN));
            match time.and_then(|time| bound.take(time).map(|()| time).map_err(|r| r.to_string())) {
                Ok(time) => times[index] = time,
                Err(reason) => {
                    let at = position + index as u64;
                    self.bad.handle(input, at, &records[index], reason)?;
                    self.rejected.push(index);
                }
            }
            from = index + 1;
        }
    }
}

/// The result of [`stamp_run`].
enum Run<E> {
    /// All records are stamped, with this latest time.
    Through(Timestamp),
    /// The record at this index has no time within the limit.
    Stopped(usize, Result<Timestamp, E>),
}

/// Stamps records up to the first without a time within `limit`.
///
/// This loop runs for each record of a job and keeps its variables in registers.
fn stamp_run<T, R: EventTime>(
    time: impl Fn(&T) -> R,
    records: &[T],
    times: &mut [Timestamp],
    limit: Timestamp,
) -> Run<R::Reason> {
    let mut guard = RecordGuard::new();
    let mut highest = Timestamp::MIN;
    for (index, (record, stamp)) in records.iter().zip(times).enumerate() {
        match time(record).event_time() {
            Ok(time) if time <= limit && time != Timestamp::MIN => {
                *stamp = time;
                highest = highest.max(time);
            }
            other => return Run::Stopped(index, other),
        }
        guard.advance();
    }
    Run::Through(highest)
}

impl<T, R, F> Processor for StampP<T, R, F>
where
    T: Send + 'static,
    R: EventTime + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.emitter.attach(context);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let count = passable::<T>(inbox, outbox, Ordinal::FIRST)?;
        let highest = self.stamp(input, inbox, count)?;
        let removed = remove_at::<T>(inbox, &mut self.rejected)?;
        let passed = count - removed;
        pass_front::<T>(inbox, outbox, Ordinal::FIRST, passed)?;
        let held_up = !inbox.is_empty();
        self.emitter.after_chunk(passed, highest, held_up, outbox);
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        Ok(self.emitter.replace(watermark, outbox))
    }

    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.emitter.check_idle(outbox);
        Ok(Progress::DONE)
    }

    fn on_batch_end(&mut self, batch: MicroBatch, outbox: &mut Outbox) -> Result<Progress> {
        Ok(self.emitter.end_batch(batch, outbox))
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.emitter.check_idle(outbox);
        Ok(())
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T, R, F> Checkpointed for StampP<T, R, F>
where
    T: Send + 'static,
    R: EventTime + 'static,
    F: Fn(&T) -> R + Send + Sync + 'static,
{
    fn states(&mut self) -> Vec<StateShape> {
        WatermarkEmitter::states()
    }

    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.emitter.take_snapshot()
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.emitter.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.emitter.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.emitter.restored()?;
        Ok(Progress::DONE)
    }
}

impl<T, R, F> fmt::Debug for StampP<T, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StampP")
            .field("emitter", &self.emitter)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_errors::raw_of;
    use crate::test_driver::{Drive, LaneOutput, at, untimed};
    use ardea_core::Marker;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::time::Duration;

    fn in_order() -> WatermarkPolicy {
        WatermarkPolicy::in_order()
    }

    #[test]
    fn records_get_their_times_and_watermarks_follow() {
        Drive::every_schedule(|drive| {
            let policy = WatermarkPolicy::out_of_order(Duration::from_secs(40));
            let mut stamp = StampP::new(Arc::new(|n: &i64| at(*n * 7 % 40)), policy);
            let seen = drive.records(untimed(0..40i64)).run::<i64>(&mut stamp);
            assert_eq!(
                seen.records(),
                (0..40).map(|n| (n, at(n * 7 % 40))).collect::<Vec<_>>()
            );
            seen.assert_in_time();
            let last = seen
                .events()
                .iter()
                .rev()
                .find(|event| matches!(event, LaneOutput::Watermark(_)));
            assert_eq!(last, Some(&LaneOutput::Watermark(at(-1))));
        });
    }

    #[test]
    fn a_record_without_a_time_is_set_aside_and_the_others_keep_theirs() {
        Drive::every_schedule(|drive| {
            let letters = Arc::clone(&drive.context.dead_letters);
            let time = |n: &i64| if n % 5 == 0 { None } else { Some(at(*n)) };
            let mut stamp =
                StampP::new(Arc::new(time), in_order()).on_error(OnError::DeadLetter, raw_of);
            let seen = drive.records(untimed(0..20i64)).run::<i64>(&mut stamp);
            let expected: Vec<_> = (0..20).filter(|n| n % 5 != 0).map(|n| (n, at(n))).collect();
            assert_eq!(seen.records(), expected);
            assert_eq!(
                letters
                    .sample()
                    .iter()
                    .map(|letter| &letter.raw[..])
                    .collect::<Vec<_>>(),
                [&b"0"[..], b"5", b"10", b"15"]
            );
        });
    }

    #[test]
    fn a_record_far_ahead_is_set_aside_and_makes_no_other_late() {
        let time = |n: &i64| {
            if *n == 2 {
                at(i64::MAX / 4_000_000)
            } else {
                at(*n)
            }
        };
        Drive::every_schedule(|drive| {
            let mut stamp = StampP::new(Arc::new(time), in_order());
            let letters = Arc::clone(&drive.context.dead_letters);
            let seen = drive.records(untimed(0..6i64)).run::<i64>(&mut stamp);
            let expected: Vec<_> = (0..6).filter(|n| *n != 2).map(|n| (n, at(n))).collect();
            assert_eq!(seen.records(), expected);
            seen.assert_in_time();
            assert_eq!(letters.sample().len(), 1);
        });
        let without = in_order().max_ahead(None);
        let drive = Drive::default().records(untimed(0..6i64));
        let seen = drive.run::<i64>(&mut StampP::new(Arc::new(time), without));
        assert_eq!(seen.records().len(), 6);
    }

    #[test]
    fn times_before_a_record_that_is_set_aside_count_for_the_watermark() {
        let time = |n: &i64| match n {
            3 => panic!("no"),
            5 => None,
            7 => Some(at(i64::MAX / 4_000_000)),
            n => Some(at(20 - n)),
        };
        Drive::every_schedule(|drive| {
            let mut stamp = StampP::new(
                Arc::new(time),
                WatermarkPolicy::out_of_order(Duration::from_secs(30)),
            );
            let seen = drive.records(untimed(0..9i64)).run::<i64>(&mut stamp);
            let kept = [0, 1, 2, 4, 6, 8].map(|n| (n, at(20 - n)));
            assert_eq!(seen.records(), kept);
            let marks: Vec<_> = seen
                .events()
                .iter()
                .filter(|event| matches!(event, LaneOutput::Watermark(_)))
                .collect();
            assert_eq!(marks, [&LaneOutput::Watermark(at(-10))]);
        });
    }

    #[test]
    fn the_end_of_time_is_not_an_event_time() {
        let mut stamp = StampP::new(Arc::new(|time: &Timestamp| *time), in_order())
            .on_error(OnError::Fail, raw_of);
        let drive = Drive::default().records(untimed([at(1), Timestamp::MAX]));
        let error = drive.try_run::<Timestamp>(&mut stamp).unwrap_err();
        assert_eq!(error.record(), Some((0, 1)));
    }

    #[test]
    fn a_silent_input_says_that_it_is_idle_now_and_then_and_wakes_with_a_record() {
        let mut stamp = StampP::new(Arc::new(|n: &i64| at(*n)), in_order());
        let seen = Drive::default()
            .records(untimed([1i64]))
            .advance(Duration::from_secs(9))
            .records(untimed([2i64]))
            .advance(Duration::from_secs(9))
            .advance(Duration::from_secs(1))
            .advance(Duration::from_secs(1))
            .advance(Duration::from_secs(10))
            .records(untimed([3i64]))
            .advance(Duration::from_secs(10))
            .advance(Duration::from_secs(1))
            .run::<i64>(&mut stamp);
        let record = |n| LaneOutput::Record(n, at(n));
        let mark = |n| LaneOutput::Watermark(at(n));
        let idle = LaneOutput::Other(Marker::Idle);
        assert_eq!(
            seen.events(),
            [
                record(1),
                mark(1),
                record(2),
                mark(2),
                idle.clone(),
                idle.clone(),
                record(3),
                mark(3),
                idle
            ]
        );
    }

    #[test]
    fn the_silence_of_an_input_follows_the_numbers_of_micro_batches() {
        let mut stamp = StampP::new(Arc::new(|n: &i64| at(*n)), in_order());
        let mut drive = Drive::default().records(untimed([1i64])).batch_end(0);
        // Ten seconds of silence, and a second for a suspended process.
        for second in 1..13 {
            drive = drive.batch_end(second * 100);
        }
        let seen = drive.run::<i64>(&mut stamp);
        let idle = LaneOutput::Other(Marker::Idle);
        let expected = [
            LaneOutput::Record(1, at(1)),
            LaneOutput::Watermark(at(1)),
            idle,
        ];
        assert_eq!(seen.events(), expected);
    }

    proptest! {
        #[test]
        fn in_micro_batches_the_output_does_not_depend_on_the_division_into_chunks(
            batches in prop::collection::vec(prop::collection::vec(0..400i64, 0..30), 1..12),
            gaps in prop::collection::vec(1..400_u64, 12),
        ) {
            let outputs = RefCell::new(Vec::new());
            Drive::every_schedule(|mut drive| {
                let mut batch = 0;
                for (records, gap) in batches.iter().zip(&gaps) {
                    batch += gap;
                    drive = drive.records(untimed(records.clone())).batch_end(batch);
                }
                let policy = WatermarkPolicy::out_of_order(Duration::from_secs(3))
                    .max_ahead(Some(Duration::from_secs(200)));
                let mut stamp = StampP::new(Arc::new(|n: &i64| at(*n)), policy);
                let seen = drive.run::<i64>(&mut stamp);
                outputs.borrow_mut().push(seen.events().to_vec());
            });
            let outputs = outputs.into_inner();
            for output in &outputs {
                prop_assert_eq!(output, &outputs[0]);
            }
        }
    }

    #[test]
    fn an_input_whose_records_are_all_set_aside_becomes_idle() {
        let far = 99_000_000_000_i64;
        let mut stamp = StampP::new(Arc::new(|n: &i64| at(*n)), in_order());
        let mut drive = Drive::default().records(untimed([1i64]));
        for _ in 0..12 {
            drive = drive
                .advance(Duration::from_secs(1))
                .records(untimed([far]));
        }
        let seen = drive.run::<i64>(&mut stamp);
        let idle = LaneOutput::Other(Marker::Idle);
        assert_eq!(
            seen.events(),
            [
                LaneOutput::Record(1, at(1)),
                LaneOutput::Watermark(at(1)),
                idle
            ]
        );
    }

    #[test]
    fn watermarks_from_before_are_replaced_and_the_end_passes() {
        let mut stamp = StampP::new(Arc::new(|n: &i64| at(*n)), in_order());
        let seen = Drive::default()
            .watermark(at(1000))
            .records(untimed([1i64]))
            .watermark(Timestamp::MAX)
            .run::<i64>(&mut stamp);
        assert_eq!(
            seen.events()[1..],
            [
                LaneOutput::Watermark(at(1)),
                LaneOutput::Watermark(Timestamp::MAX)
            ]
        );
    }
}
