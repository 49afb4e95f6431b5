//! The operations of user code with keyed state: output, timers, removal.

use std::time::Duration;

use ardea_core::{Clock, Timestamp, Watermark};

use crate::Output;
use crate::keyed::TimerSet;

/// The clock of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerKind {
    /// Event time: fires when the watermark passes the time of the timer.
    Event,
    /// Processing time: fires when the instance's clock passes the time of the timer.
    Processing,
}

/// The timers of all keys of an instance.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    pub(crate) event: TimerSet<Timestamp>,
    pub(crate) processing: TimerSet<Duration>,
    /// The times at which unused keys expire (time-to-live).
    pub(crate) expiry: TimerSet<Timestamp>,
}

impl Timers {
    pub(crate) fn forget(&mut self, slot: u32) {
        self.event.forget(slot);
        self.processing.forget(slot);
        self.expiry.forget(slot);
    }
}

/// The operations of user code with keyed state: emit records, set timers, clear the state.
///
/// Passed to the functions of [`StatefulMapP`](crate::StatefulMapP) for the current key.
#[derive(Debug)]
pub struct KeyedContext<'a, 'o, U> {
    pub(crate) output: &'a mut Output<'o, U>,
    pub(crate) timers: &'a mut Timers,
    pub(crate) clock: &'a Clock,
    pub(crate) slot: u32,
    pub(crate) time: Timestamp,
    pub(crate) watermark: Watermark,
    pub(crate) fired: Option<TimerKind>,
    pub(crate) cleared: bool,
}

impl<U> KeyedContext<'_, '_, U> {
    /// Emits a record with the event time of the current record or event timer. For a processing
    /// timer, the event time is the [`watermark`](Self::watermark).
    #[inline]
    pub fn emit(&mut self, value: U) {
        self.emit_at(value, self.time);
    }

    /// Emits a record with the event time `time`. With a time before the
    /// [`watermark`](Self::watermark), the record is late downstream. [`Timestamp::MAX`] (a
    /// saturated sum) is replaced by the last event time.
    #[inline]
    pub fn emit_at(&mut self, value: U, time: Timestamp) {
        self.output.emit(value, time.min(Timestamp::LAST_EVENT));
    }

    /// Returns the current watermark. A record with an earlier time is late.
    pub fn watermark(&self) -> Watermark {
        self.watermark
    }

    /// Returns the kind of timer that fired; `None` for a record.
    pub fn fired(&self) -> Option<TimerKind> {
        self.fired
    }

    /// Sets an event timer of the key. It fires when no record before `time` can arrive any more,
    /// or at the end of the input.
    ///
    /// Setting the same time twice has no further effect. A timer in the past fires with the next
    /// watermark. A timer set during the end of the input never fires, so that a self-renewing
    /// timer ends.
    pub fn set_event_timer(&mut self, time: Timestamp) {
        if self.watermark != Watermark::END {
            self.timers.event.set(self.slot, time);
        }
    }

    /// Clears the key's event timer for `time`, if it is set.
    pub fn clear_event_timer(&mut self, time: Timestamp) {
        self.timers.event.clear(self.slot, time);
    }

    /// Sets a timer that fires after `delay` on the processing-time clock. The timer never fires
    /// after the end of the input.
    pub fn set_processing_timer(&mut self, delay: Duration) {
        let deadline = self.clock.now().saturating_add(delay);
        self.timers.processing.set(self.slot, deadline);
    }

    /// Clears all processing timers of the key.
    pub fn clear_processing_timers(&mut self) {
        self.timers.processing.forget(self.slot);
    }

    /// Removes the key with its state and timers when the user function returns. The next record
    /// creates a new state.
    pub fn clear_state(&mut self) {
        self.cleared = true;
    }
}
