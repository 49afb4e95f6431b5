//! Watermarks for a source that has set the event times itself.

use std::marker::PhantomData;

use ardea_core::{
    Cut, CutWriter, Epoch, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress,
    RestoredState, Result, StateShape, Timestamp, Watermark,
};

use crate::passing::{pass_front, passable};
use crate::time::WatermarkPolicy;
use crate::time::emitter::WatermarkEmitter;

/// Makes watermarks from the event times that the source has given its records.
///
/// Reads the column of times only. Watermarks follow the [`WatermarkPolicy`], after each chunk; those that came from before
/// are replaced, and a silent input is declared idle.
///
/// ```
/// use ardea_core::{Chunk, Inbox, Marker, Ordinal, Outbox, Processor, Rows, Timestamp, Watermark};
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
    emitter: WatermarkEmitter,
    records: PhantomData<fn(T)>,
}

impl<T> NativeTimeP<T> {
    /// Watermarks by `policy`.
    pub fn new(policy: WatermarkPolicy) -> Self {
        NativeTimeP {
            emitter: WatermarkEmitter::new(policy),
            records: PhantomData,
        }
    }
}

impl<T: Send + 'static> Processor for NativeTimeP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.emitter.attach(context);
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let count = passable::<T>(inbox, outbox, Ordinal::FIRST)?;
        let times = &inbox.rows::<T>()?.times()[..count];
        let highest = times
            .iter()
            .fold(Timestamp::MIN, |highest, time| highest.max(*time));
        pass_front::<T>(inbox, outbox, Ordinal::FIRST, count)?;
        self.emitter.after_chunk(highest, !inbox.is_empty(), outbox);
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        Ok(self.emitter.replace(watermark, outbox))
    }

    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.emitter.watch_silence(outbox);
        Ok(Progress::DONE)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.emitter.watch_silence(outbox);
        Ok(())
    }

    fn states(&self) -> Vec<StateShape> {
        WatermarkEmitter::states()
    }

    fn take_cut(&mut self, _: Cut) -> Result<()> {
        self.emitter.take_cut()
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.emitter.write_cut(writer)
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
    use crate::drive::{Drive, Seen, at};
    use ardea_core::Marker;
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
    fn an_input_that_is_silent_from_the_start_turns_idle() {
        let woken = Drive::default()
            .watermark(at(0))
            .advance(WatermarkPolicy::IDLE_TIMEOUT)
            .advance(WatermarkPolicy::IDLE_TIMEOUT / 10);
        let seen = woken.run::<u8>(&mut NativeTimeP::<u8>::new(WatermarkPolicy::in_order()));
        assert_eq!(seen.events(), [Seen::Other(Marker::Idle)]);
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
