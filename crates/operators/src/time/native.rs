//! Watermarks for sources that set event times.

use std::marker::PhantomData;

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, MicroBatch, OnError, Ordinal, Outbox, Processor,
    Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape, Timestamp,
    Watermark,
};

use crate::forward::{pass_front, passable, remove_at};
use crate::record_errors::RecordErrors;
use crate::time::WatermarkPolicy;
use crate::time::emitter::WatermarkEmitter;

/// Generates watermarks from the event times set by the source.
///
/// Reads only the column of times. Watermarks follow the [`WatermarkPolicy`] after each chunk. They
/// replace upstream watermarks, and a silent input is declared idle.
///
/// A record without an event time, or further ahead than the policy's
/// [`max_ahead`](WatermarkPolicy::max_ahead), is handled by the [`OnError`] policy. The default is
/// dead letters.
///
/// ```
/// use ardea_core::{Chunk, Inbox, Marker, Ordinal, Outbox, OutboxRuntime, Processor};
/// use ardea_core::{Rows, Timestamp, Watermark};
/// use ardea_operators::{NativeTimeP, WatermarkPolicy};
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("a", Timestamp::from_secs(3)), ("b", Timestamp::from_secs(4))])));
/// let mut outbox = Outbox::new(1, 16);
///
/// NativeTimeP::<&str>::new(WatermarkPolicy::in_order()).process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// outbox.take_chunk(0, Chunk::default);
/// assert_eq!(outbox.take_marker(0), Some(Marker::Watermark(Watermark(Timestamp::from_secs(4)))));
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct NativeTimeP<T> {
    bad: RecordErrors<T>,
    emitter: WatermarkEmitter,
    /// Batch indexes of the records without a valid time. Empty between calls.
    rejected: Vec<usize>,
    records: PhantomData<fn(T)>,
}

impl<T> NativeTimeP<T> {
    /// Creates an operator with watermarks by `policy`. Bad records become dead letters without
    /// bytes.
    pub fn new(policy: WatermarkPolicy) -> Self {
        NativeTimeP {
            bad: RecordErrors::new(OnError::DeadLetter, |_| Vec::new()),
            emitter: WatermarkEmitter::new(policy),
            rejected: Vec::new(),
            records: PhantomData,
        }
    }

    /// Sets the error policy for records without a valid time. `raw` returns the bytes of a record
    /// for a dead letter.
    pub fn on_error(mut self, policy: OnError, raw: fn(&T) -> Vec<u8>) -> Self {
        self.bad = RecordErrors::new(policy, raw);
        self
    }
}

impl<T: Send + 'static> NativeTimeP<T> {
    /// Collects the records among the first `count` that have no valid time. Returns the latest
    /// time of the others.
    fn check(&mut self, input: Ordinal, inbox: &mut Inbox, count: usize) -> Result<Timestamp> {
        let position = inbox.position();
        let rows = inbox.rows::<T>()?;
        let times = &rows.times()[..count];
        let mut bound = self.emitter.bound();
        // Fast path: two folds that nearly always accept all records at once.
        let earliest = times.iter().fold(Timestamp::MAX, |a, b| a.min(*b));
        let latest = times.iter().fold(Timestamp::MIN, |a, b| a.max(*b));
        if earliest > Timestamp::MIN && latest <= bound.limit() {
            return Ok(bound.highest().max(latest));
        }
        for (index, (time, record)) in times.iter().zip(rows.values()).enumerate() {
            if let Err(reason) = bound.take(*time) {
                let at = position + index as u64;
                self.bad.handle(input, at, record, reason)?;
                self.rejected.push(index);
            }
        }
        Ok(bound.highest())
    }
}

impl<T: Send + 'static> Processor for NativeTimeP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.emitter.attach(context);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let count = passable::<T>(inbox, outbox, Ordinal::FIRST)?;
        let highest = self.check(input, inbox, count)?;
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

impl<T: Send + 'static> Checkpointed for NativeTimeP<T> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_errors::raw_of;
    use crate::test_driver::{Drive, LaneOutput, at};
    use ardea_core::{Marker, OutboxRuntime};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn records_pass_unchanged_and_watermarks_stay_behind_them() {
        Drive::every_schedule(|drive| {
            let records: Vec<_> = (0..30).map(|n| (n, at(n * 7 % 30))).collect();
            let policy = WatermarkPolicy::out_of_order(Duration::from_secs(30));
            let seen = drive
                .records(records.clone())
                .run::<i64>(&mut NativeTimeP::<i64>::new(policy));
            assert_eq!(seen.records(), records);
            seen.assert_in_time();
        });
    }

    #[test]
    fn records_without_a_valid_time_are_set_aside_and_move_no_watermark() {
        Drive::every_schedule(|drive| {
            let letters = Arc::clone(&drive.context.dead_letters);
            let time = |n: i64| match n % 10 {
                3 => Timestamp::MIN,
                5 => Timestamp::MAX,
                7 => Timestamp::LAST_EVENT,
                _ => at(n),
            };
            let mut native = NativeTimeP::<i64>::new(WatermarkPolicy::in_order())
                .on_error(OnError::DeadLetter, raw_of);
            let records: Vec<_> = (0..20).map(|n| (n, time(n))).collect();
            let seen = drive.records(records.clone()).run::<i64>(&mut native);
            let valid = |record: &(i64, Timestamp)| record.1 == at(record.0);
            let expected: Vec<_> = records.into_iter().filter(valid).collect();
            assert_eq!(seen.records(), expected);
            seen.assert_in_time();
            let raw: Vec<_> = letters.sample().iter().map(|it| it.raw.clone()).collect();
            assert_eq!(raw, [&b"3"[..], b"5", b"7", b"13", b"15", b"17"]);
        });
    }

    #[test]
    fn an_input_that_is_silent_from_the_start_turns_idle() {
        let woken = Drive::default()
            .watermark(at(0))
            .advance(WatermarkPolicy::IDLE_TIMEOUT)
            .advance(WatermarkPolicy::IDLE_TIMEOUT / 10);
        let seen = woken.run::<u8>(&mut NativeTimeP::<u8>::new(WatermarkPolicy::in_order()));
        assert_eq!(seen.events(), [LaneOutput::Other(Marker::Idle)]);
    }

    #[test]
    fn records_that_wait_for_room_are_no_silence() {
        let drive = Drive::default();
        let hand = ardea_core::ManualClock::new();
        let mut native = NativeTimeP::<u8>::new(WatermarkPolicy::in_order());
        native
            .init(&InstanceContext {
                clock: hand.clock(),
                ..drive.context
            })
            .unwrap();
        let mut inbox = Inbox::default();
        inbox.fill(ardea_core::Chunk::new(ardea_core::Rows::from_iter([(
            1u8,
            at(1),
        )])));
        let mut outbox = Outbox::new(1, 4);
        outbox.set_budget(0);
        native
            .process(Ordinal::FIRST, &mut inbox, &mut outbox)
            .unwrap();
        outbox.take_wake_at();
        hand.advance(Duration::from_secs(60));
        native.on_wake(&mut outbox).unwrap();
        assert_eq!(outbox.take_marker(0), None);
        assert_eq!(outbox.take_wake_at(), Some(Duration::from_secs(70)));
    }
}
