//! The time of day as event time: processing time and ingestion time.

use std::marker::PhantomData;
use std::time::Duration;

use ardea_core::{
    Clock, Cut, CutWriter, Epoch, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress,
    RestoredState, Result, StateShape, Timestamp, Watermark,
};

use crate::of_instance::OfInstance;
use crate::passing::{pass_front, passable};

/// Gives each record the time of day at which it came here, and watermarks that follow the clock.
///
/// Behind a source that is ingestion time; before a window that is processing time. Records of one chunk came together and
/// have one time. Time goes on without records: a watermark is sent every tick, so that windows close in a silent stream;
/// nothing is ever late, and the stream is never idle.
///
/// ```
/// use std::time::Duration;
/// use ardea_core::{Chunk, Inbox, InstanceContext, ManualClock, Marker, Ordinal, Outbox};
/// use ardea_core::{Processor, Rows, Timestamp, Watermark};
/// use ardea_operators::ArrivalTimeP;
///
/// let hand = ManualClock::new();
/// let mut arrival = ArrivalTimeP::<&str>::new(Duration::from_millis(10));
/// arrival.init(&InstanceContext { clock: hand.clock(), ..InstanceContext::detached("arrival") })?;
///
/// hand.advance(Duration::from_secs(3));
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("a", Timestamp::MIN)])));
/// let mut outbox = Outbox::new(1, 16);
/// arrival.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
///
/// let mut chunk = outbox.take_chunk(0, Chunk::default).unwrap();
/// assert_eq!(chunk.rows::<&str>()?.times(), [Timestamp::from_secs(3)]);
/// assert_eq!(outbox.take_marker(0), Some(Marker::Watermark(Watermark(Timestamp::from_secs(3)))));
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ArrivalTimeP<T> {
    tick: Duration,
    clock: Clock,
    /// When, on the monotonic clock, the next watermark is due.
    due: Duration,
    sent: Watermark,
    /// The watermark comes from another life, and is to be said once more: those behind it wait for it.
    says_again: bool,
    /// Where it has to survive it.
    kept: OfInstance<1>,
    records: PhantomData<fn(T)>,
}

impl<T> ArrivalTimeP<T> {
    /// The shortest tick.
    pub const MIN_TICK: Duration = Duration::from_millis(1);

    /// Sends a watermark every `tick`, at least [`MIN_TICK`](Self::MIN_TICK): results come up to so much later.
    pub fn new(tick: Duration) -> Self {
        ArrivalTimeP {
            tick: tick.max(Self::MIN_TICK),
            clock: Clock::system(),
            due: Duration::ZERO,
            sent: Watermark::NONE,
            says_again: false,
            kept: OfInstance::default(),
            records: PhantomData,
        }
    }

    /// Sends a watermark if it is time, and asks to be woken for the next.
    fn tick(&mut self, outbox: &mut Outbox) {
        let now = self.clock.now();
        if now >= self.due {
            let watermark = Watermark(self.clock.wall()).max(self.sent);
            self.due = now.saturating_add(self.tick);
            let is_news = watermark > self.sent || self.says_again;
            if is_news && outbox.has_room(Ordinal::FIRST) {
                self.sent = watermark;
                self.says_again = false;
                outbox.watermark(watermark);
            }
        }
        outbox.wake_at(self.due);
    }
}

impl<T: Send + 'static> Processor for ArrivalTimeP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        self.kept.attach(context);
        // The first wake asks for the next, so that time goes on even before the first record.
        context.waker.wake();
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let count = passable::<T>(inbox, outbox, Ordinal::FIRST)?;
        // Another life may have been on a machine whose clock is ahead: what comes now is not before what that has promised.
        let now: Timestamp = self.clock.wall().max(self.sent.0);
        inbox.rows::<T>()?.times_mut()[..count].fill(now);
        pass_front::<T>(inbox, outbox, Ordinal::FIRST, count)?;
        self.tick(outbox);
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if watermark == Watermark::END {
            outbox.watermark(watermark);
        } else {
            self.tick(outbox);
        }
        Ok(Progress::DONE)
    }

    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.tick(outbox);
        Ok(Progress::DONE)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.tick(outbox);
        Ok(())
    }

    fn states(&self) -> Vec<StateShape> {
        OfInstance::<1>::states()
    }

    fn take_cut(&mut self, _: Cut) -> Result<()> {
        self.kept.take_cut([self.sent.0.as_micros()])
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.kept.write_cut(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.kept.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let Some([sent]) = self.kept.own_or_least()? {
            self.sent = Watermark(Timestamp::from_micros(sent));
            self.says_again = self.sent > Watermark::NONE;
        }
        Ok(Progress::DONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Drive, Seen, at, untimed};

    #[test]
    fn records_have_the_time_of_their_coming_and_time_goes_on_without_them() {
        let tick = Duration::from_secs(1);
        let seen = Drive::default()
            .records(untimed(["a"]))
            .advance(tick)
            .advance(tick)
            .records(untimed(["b"]))
            .run::<&str>(&mut ArrivalTimeP::<&str>::new(tick));
        let expected = [
            Seen::Record("a", at(0)),
            Seen::Watermark(at(0)),
            Seen::Watermark(at(1)),
            Seen::Watermark(at(2)),
            Seen::Record("b", at(2)),
        ];
        assert_eq!(seen.events(), expected);
    }

    #[test]
    fn nothing_is_lost_or_late_whatever_the_schedule() {
        Drive::every_schedule(|drive| {
            let tick = ArrivalTimeP::<u32>::MIN_TICK;
            let drive = drive
                .records(untimed(0..30u32))
                .advance(tick)
                .records(untimed(30..50u32));
            let seen = drive.run::<u32>(&mut ArrivalTimeP::<u32>::new(tick));
            assert_eq!(seen.values(), (0..50).collect::<Vec<_>>());
            seen.assert_in_time();
        });
    }
}
