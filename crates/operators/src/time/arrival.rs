//! The wall clock as event time: processing time and ingestion time.

use std::marker::PhantomData;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Clock, Epoch, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress,
    RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape, Timestamp, Watermark,
};

use crate::forward::{pass_front, passable};
use crate::instance_state::InstanceCounters;

/// Assigns each record the wall-clock time of its arrival as event time, and emits watermarks that
/// follow the clock.
///
/// After a source this is ingestion time; before a window it is processing time. Records of one
/// chunk have the same time. A watermark is sent every tick even without records, so that windows
/// close. No record is late, and the stream is never idle.
///
/// ```
/// use std::time::Duration;
/// use ardea_core::{Chunk, Inbox, InstanceContext, ManualClock, Marker, Ordinal, Outbox};
/// use ardea_core::{OutboxRuntime, Processor, Rows, Timestamp, Watermark};
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
    /// The time of the next watermark, on the monotonic clock.
    due: Duration,
    sent: Watermark,
    /// True if a restored watermark must be sent again. Downstream instances wait for it.
    resend: bool,
    /// The checkpointed watermark.
    kept: InstanceCounters<1>,
    records: PhantomData<fn(T)>,
}

impl<T> ArrivalTimeP<T> {
    /// The shortest tick.
    pub const MIN_TICK: Duration = Duration::from_millis(1);

    /// Creates an operator that sends a watermark every `tick`, which is raised to
    /// [`MIN_TICK`](Self::MIN_TICK) if shorter. The tick is the maximum additional latency of
    /// results.
    pub fn new(tick: Duration) -> Self {
        ArrivalTimeP {
            tick: tick.max(Self::MIN_TICK),
            clock: Clock::system(),
            due: Duration::ZERO,
            sent: Watermark::NONE,
            resend: false,
            kept: InstanceCounters::default(),
            records: PhantomData,
        }
    }

    /// Sends a watermark if it is due, and requests the next wake-up.
    fn tick(&mut self, outbox: &mut Outbox) {
        let now = self.clock.now();
        if now >= self.due {
            let watermark = Watermark(self.clock.wall()).max(self.sent);
            self.due = now.saturating_add(self.tick);
            let is_news = watermark > self.sent || self.resend;
            if is_news && outbox.has_room(Ordinal::FIRST) {
                self.sent = watermark;
                self.resend = false;
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
        // The first wake-up schedules the next, so that time advances before the first record.
        context.waker.wake();
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let count = passable::<T>(inbox, outbox, Ordinal::FIRST)?;
        // The previous attempt may have run on a host whose clock was ahead. New event times must
        // not be before the watermark of that attempt.
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

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T: Send + 'static> Checkpointed for ArrivalTimeP<T> {
    fn states(&mut self) -> Vec<StateShape> {
        InstanceCounters::<1>::states()
    }

    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.kept.take_snapshot([self.sent.0.as_micros()])
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.kept.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.kept.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let Some([sent]) = self.kept.own_or_least()? {
            self.sent = Watermark(Timestamp::from_micros(sent));
            self.resend = self.sent > Watermark::NONE;
        }
        Ok(Progress::DONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, LaneOutput, at, untimed};

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
            LaneOutput::Record("a", at(0)),
            LaneOutput::Watermark(at(0)),
            LaneOutput::Watermark(at(1)),
            LaneOutput::Watermark(at(2)),
            LaneOutput::Record("b", at(2)),
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
