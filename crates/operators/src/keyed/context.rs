//! What user code with state may do besides changing it.

use std::time::Duration;

use ardea_core::{Clock, Timestamp, Watermark};

use crate::Output;
use crate::keyed::TimerSet;

/// Which clock a timer was set on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerKind {
    /// Event time: the watermark has passed.
    Event,
    /// Processing time: the instance's clock has passed.
    Processing,
}

/// The timers of all keys of an instance.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    pub(crate) event: TimerSet<Timestamp>,
    pub(crate) processing: TimerSet<Duration>,
    /// When a state that is not touched any more is dropped.
    pub(crate) expiry: TimerSet<Timestamp>,
}

impl Timers {
    pub(crate) fn forget(&mut self, slot: u32) {
        self.event.forget(slot);
        self.processing.forget(slot);
        self.expiry.forget(slot);
    }
}

/// What user code with state may do besides changing it: emit, set timers, drop the state.
///
/// Given to the functions of [`StatefulMapP`](crate::StatefulMapP), for the key at hand.
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
    /// Emits a record with the event time of the record, or of the event timer, at hand; that of a processing timer is the
    /// [`watermark`](Self::watermark).
    #[inline]
    pub fn emit(&mut self, value: U) {
        self.emit_at(value, self.time);
    }

    /// Emits a record with an event time of its own. One before the [`watermark`](Self::watermark) is late downstream.
    /// [`Timestamp::MAX`], which a sum of a time and a duration may saturate to, is no event time: it becomes the last one.
    #[inline]
    pub fn emit_at(&mut self, value: U, time: Timestamp) {
        self.output.emit(value, time.min(Timestamp::LAST_EVENT));
    }

    /// The watermark so far: a record with a time before it is late.
    pub fn watermark(&self) -> Watermark {
        self.watermark
    }

    /// Which kind of timer fired; `None` for a record.
    pub fn fired(&self) -> Option<TimerKind> {
        self.fired
    }

    /// Has the key's timer function called when no record before `time` can follow any more, or at the end of the input.
    ///
    /// Setting the same time twice is like setting it once. A time that has passed already fires with the next watermark. One
    /// that is set while the input's end is dealt with never fires: a timer that renews itself ends there.
    pub fn set_event_timer(&mut self, time: Timestamp) {
        if self.watermark != Watermark::END {
            self.timers.event.set(self.slot, time);
        }
    }

    /// Takes back the key's event timer for `time`, if there is one.
    pub fn clear_event_timer(&mut self, time: Timestamp) {
        self.timers.event.clear(self.slot, time);
    }

    /// Has the key's timer function called after this `delay` on the machine's clock. Never fires once the input has ended.
    pub fn set_processing_timer(&mut self, delay: Duration) {
        let deadline = self.clock.now().saturating_add(delay);
        self.timers.processing.set(self.slot, deadline);
    }

    /// Takes back all processing timers of the key.
    pub fn clear_processing_timers(&mut self) {
        self.timers.processing.forget(self.slot);
    }

    /// Forgets the key when the function returns: its state and all its timers. The next record starts it anew.
    pub fn clear_state(&mut self) {
        self.cleared = true;
    }
}
