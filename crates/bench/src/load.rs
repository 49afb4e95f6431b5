//! The load generator: events at their due times, or as fast as the receivers accept them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ardea_core::instance_state::{put, value};
use ardea_core::{
    Checkpointed, Clock, InstanceContext, Ordinal, Outbox, Processor, Progress, RestoredState,
    Result, SmallSnapshot, SnapshotRequest, SnapshotWriter, Timestamp, Watermark,
};
use ardea_nexmark::{EventClock, Schedule};

use crate::rows::EventRows;

/// Poll interval of the generator; long enough to leave the core to other tasklets.
const QUANTUM: Duration = Duration::from_micros(50);

/// The name of the state: the number of the next event.
const STATE: &str = "next";

/// State shared by all generators of a run and the measuring thread.
#[derive(Debug, Default)]
pub(crate) struct LoadShared {
    /// The number of events emitted.
    pub(crate) emitted: AtomicU64,
    /// True when the time is over; the generators then end.
    pub(crate) over: AtomicBool,
}

/// The pace at which events are emitted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LoadRate {
    /// As fast as the receivers accept; event time follows the schedule.
    Max,
    /// Event `i` at `start` + `i` / rate on the wall clock, or as soon as possible after it;
    /// `count` events.
    AtRate {
        start: Timestamp,
        rate: u64,
        count: u64,
    },
}

/// A source of events for a benchmark.
pub(crate) struct LoadP<R> {
    events: R,
    schedule: Schedule,
    walk: EventClock,
    pace: LoadRate,
    /// Event time between watermarks, in microseconds.
    stride_us: i64,
    marked_stride: i64,
    clock: Clock,
    shared: Arc<LoadShared>,
    draft: SmallSnapshot,
}

impl<R: EventRows> LoadP<R> {
    pub(crate) fn new(
        events: R,
        pace: LoadRate,
        schedule: Schedule,
        stride: Duration,
        shared: Arc<LoadShared>,
    ) -> Self {
        LoadP {
            events,
            schedule,
            walk: EventClock::new(schedule, 0),
            pace,
            stride_us: (stride.as_micros() as i64).max(1),
            marked_stride: i64::MIN,
            clock: Clock::system(),
            shared,
            draft: SmallSnapshot::default(),
        }
    }

    /// Sets the clock to use until `init`.
    pub(crate) fn by(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    pub(crate) fn next_index(&self) -> u64 {
        self.walk.next_index()
    }

    /// Sets the number of the next event.
    pub(crate) fn go_on_from(&mut self, index: u64) {
        self.walk = EventClock::new(self.schedule, index);
    }

    fn emit(&mut self, count: usize, outbox: &mut Outbox) -> Result<()> {
        let mut lane = outbox.lane::<R::Row>(Ordinal::FIRST)?;
        let (events, walk, pace) = (&self.events, &mut self.walk, self.pace);
        lane.rows().extend_columns(|rows, times| {
            let mut left = count as u64;
            while left > 0 {
                let (run, date_time) = walk.run(left);
                left -= run.end - run.start;
                match pace {
                    LoadRate::Max => {
                        let time = Timestamp::from_millis(date_time);
                        events.fill(run, date_time, |_| time, rows, times);
                    }
                    LoadRate::AtRate { start, rate, .. } => {
                        let time = |index| due(start, rate, index);
                        events.fill(run, date_time, time, rows, times);
                    }
                }
            }
        });
        self.shared
            .emitted
            .fetch_add(count as u64, Ordering::Relaxed);
        self.mark(outbox);
        Ok(())
    }

    /// Emits a watermark at the next event's time if a multiple of the stride has been crossed.
    fn mark(&mut self, outbox: &mut Outbox) {
        let next = match self.pace {
            LoadRate::Max => Timestamp::from_millis(self.walk.next_ms()),
            LoadRate::AtRate { start, rate, .. } => due(start, rate, self.walk.next_index()),
        };
        let stride = next.as_micros().div_euclid(self.stride_us);
        if stride > self.marked_stride {
            self.marked_stride = stride;
            outbox.watermark(Watermark(next));
        }
    }

    fn complete_at_rate(
        &mut self,
        start: Timestamp,
        rate: u64,
        count: u64,
        outbox: &mut Outbox,
    ) -> Result<Progress> {
        let now = self.clock.wall();
        let elapsed_us = now.as_micros() - start.as_micros();
        let due_now = if elapsed_us < 0 {
            0
        } else {
            ((elapsed_us as u128 * rate as u128 / 1_000_000) as u64 + 1).min(count)
        };
        let room = outbox.lane::<R::Row>(Ordinal::FIRST)?.room() as u64;
        let ready = due_now - self.walk.next_index().min(due_now);
        if ready > 0 {
            self.emit(ready.min(room) as usize, outbox)?;
        }
        if self.walk.next_index() >= count {
            return Ok(Progress::DONE);
        }
        if ready > room {
            return Ok(Progress::MADE);
        }
        let next = due(start, rate, self.walk.next_index())
            .since(now)
            .max(QUANTUM);
        outbox.wake_at(self.clock.now() + next);
        Ok(if ready > 0 {
            Progress::MADE
        } else {
            Progress::NONE
        })
    }
}

/// Returns the time at which event `index` is due.
#[inline]
pub(crate) fn due(start: Timestamp, rate: u64, index: u64) -> Timestamp {
    Timestamp::from_micros(start.as_micros() + (index as u128 * 1_000_000 / rate as u128) as i64)
}

impl<R: EventRows> Processor for LoadP<R> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        match self.pace {
            LoadRate::Max => {
                if self.shared.over.load(Ordering::Relaxed) {
                    return Ok(Progress::DONE);
                }
                let room = outbox.lane::<R::Row>(Ordinal::FIRST)?.room();
                self.emit(room, outbox)?;
                Ok(Progress::MADE)
            }
            LoadRate::AtRate { start, rate, count } => {
                self.complete_at_rate(start, rate, count, outbox)
            }
        }
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<R: EventRows> Checkpointed for LoadP<R> {
    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        let next = self.next_index();
        put(self.draft.begin(), STATE, (0, &[]), &next)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state != STATE {
                return Err(RestoredState::unknown(&entry));
            }
            self.go_on_from(value(&entry)?);
        }
        Ok(())
    }
}
