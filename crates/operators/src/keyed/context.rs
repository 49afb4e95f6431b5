//! The operations of user code with keyed state: output, timers, removal.

use std::time::Duration;

use ardea_core::{Timestamp, Watermark};
use ardea_state::{KeyTimers, TimerKind};

use crate::Output;

/// The operations of user code with keyed state: emit records, set timers, clear the state.
///
/// Passed to the functions of [`StatefulMapP`](crate::StatefulMapP) for the current key.
#[derive(Debug)]
pub struct KeyedContext<'a, 'o, U> {
    pub(crate) output: &'a mut Output<'o, U>,
    pub(crate) timers: KeyTimers<'a>,
    pub(crate) time: Timestamp,
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
        self.timers.watermark()
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
        self.timers.set_event(time);
    }

    /// Clears the key's event timer for `time`, if it is set.
    pub fn clear_event_timer(&mut self, time: Timestamp) {
        self.timers.clear_event(time);
    }

    /// Sets a timer that fires after `delay` on the processing-time clock. The timer never fires
    /// after the end of the input.
    pub fn set_processing_timer(&mut self, delay: Duration) {
        self.timers.set_processing(delay);
    }

    /// Clears all processing timers of the key.
    pub fn clear_processing_timers(&mut self) {
        self.timers.clear_processing();
    }

    /// Removes the key with its state and timers when the user function returns. The next record
    /// creates a new state.
    pub fn clear_state(&mut self) {
        self.cleared = true;
    }
}
