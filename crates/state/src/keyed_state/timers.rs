//! Timers of keys in order of time.

use std::collections::BTreeSet;
use std::time::Duration;

use ardea_core::{Clock, Timestamp, Watermark};

/// A point in event time or in processing time.
pub trait Deadline: Copy + Ord {
    /// The minimum.
    const FIRST: Self;
}

impl Deadline for Timestamp {
    const FIRST: Self = Timestamp::MIN;
}

/// A time, and a number that orders the deadlines of this time.
impl Deadline for (Timestamp, u64) {
    const FIRST: Self = (Timestamp::MIN, 0);
}

impl Deadline for Duration {
    const FIRST: Self = Duration::ZERO;
}

/// Deadlines of slots, each at most once, in order of time, then of slots.
///
/// The deadlines are stored in two orders, so that all deadlines of a slot can be removed at once.
/// All operations are logarithmic.
#[derive(Clone, Debug)]
pub struct TimerSet<D> {
    by_time: BTreeSet<(D, u32)>,
    by_slot: BTreeSet<(u32, D)>,
}

impl<D> Default for TimerSet<D> {
    fn default() -> Self {
        TimerSet {
            by_time: BTreeSet::new(),
            by_slot: BTreeSet::new(),
        }
    }
}

impl<D: Deadline> TimerSet<D> {
    /// Sets a deadline. Setting it twice has no further effect.
    pub fn set(&mut self, slot: u32, deadline: D) {
        self.by_time.insert((deadline, slot));
        self.by_slot.insert((slot, deadline));
    }

    /// Removes one deadline of a slot.
    pub fn clear(&mut self, slot: u32, deadline: D) {
        self.by_time.remove(&(deadline, slot));
        self.by_slot.remove(&(slot, deadline));
    }

    /// Returns all deadlines of a slot.
    pub fn of(&self, slot: u32) -> impl Iterator<Item = D> {
        let all = self.by_slot.range((slot, D::FIRST)..);
        all.take_while(move |(owner, _)| *owner == slot)
            .map(|(_, deadline)| *deadline)
    }

    /// Removes all deadlines of a slot.
    pub fn forget(&mut self, slot: u32) {
        while let Some(&(owner, deadline)) = self.by_slot.range((slot, D::FIRST)..).next() {
            if owner != slot {
                break;
            }
            self.clear(slot, deadline);
        }
    }

    /// Returns the first deadline and its slot.
    #[inline]
    pub fn first(&self) -> Option<(D, u32)> {
        self.by_time.first().copied()
    }

    /// Returns the first deadline and its slot, if it is not after `until`.
    #[inline]
    pub fn first_due(&self, until: D) -> Option<(D, u32)> {
        self.first().filter(|(deadline, _)| *deadline <= until)
    }

    /// Removes and returns the first deadline, if it is not after `until`.
    #[inline]
    pub fn pop_due(&mut self, until: D) -> Option<(D, u32)> {
        let (deadline, slot) = self.first_due(until)?;
        self.clear(slot, deadline);
        Some((deadline, slot))
    }
}

/// The clock of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerKind {
    /// Event time: fires when the watermark passes the time of the timer.
    Event,
    /// Processing time: fires when the instance's clock passes the time of the timer.
    Processing,
}

/// The timers of all keys of an instance, and their clocks.
#[derive(Debug)]
pub(crate) struct Timers {
    pub(crate) event: TimerSet<Timestamp>,
    pub(crate) processing: TimerSet<Duration>,
    /// The times at which unused keys expire.
    pub(crate) expiry: TimerSet<Timestamp>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) clock: Clock,
    pub(crate) watermark: Watermark,
}

impl Default for Timers {
    fn default() -> Self {
        Timers {
            event: TimerSet::default(),
            processing: TimerSet::default(),
            expiry: TimerSet::default(),
            ttl: None,
            clock: Clock::system(),
            watermark: Watermark::NONE,
        }
    }
}

impl Timers {
    /// Removes all timers of a slot.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.event.forget(slot);
        self.processing.forget(slot);
        self.expiry.forget(slot);
    }

    /// Takes over the timers of another attempt.
    pub(crate) fn take_over(&mut self, before: Timers) {
        self.event = before.event;
        self.processing = before.processing;
        self.expiry = before.expiry;
    }
}

/// The timers of one key.
#[derive(Debug)]
pub struct KeyTimers<'a> {
    pub(crate) timers: &'a mut Timers,
    pub(crate) slot: u32,
}

impl KeyTimers<'_> {
    /// Returns the watermark of the state.
    pub fn watermark(&self) -> Watermark {
        self.timers.watermark
    }

    /// Sets an event timer. It fires when no record before `time` can arrive any more, or at the
    /// end of the input.
    ///
    /// Setting the same time twice has no further effect. A timer in the past fires with the next
    /// watermark. A timer set during the end of the input never fires, so that a self-renewing
    /// timer ends.
    pub fn set_event(&mut self, time: Timestamp) {
        if self.timers.watermark != Watermark::END {
            self.timers.event.set(self.slot, time);
        }
    }

    /// Clears the event timer for `time`, if it is set.
    pub fn clear_event(&mut self, time: Timestamp) {
        self.timers.event.clear(self.slot, time);
    }

    /// Sets a timer that fires after `delay` on the processing-time clock. It never fires after the
    /// end of the input.
    pub fn set_processing(&mut self, delay: Duration) {
        let deadline = self.timers.clock.now().saturating_add(delay);
        self.timers.processing.set(self.slot, deadline);
    }

    /// Clears all processing timers.
    pub fn clear_processing(&mut self) {
        self.timers.processing.forget(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_in_order_of_time_and_those_of_a_forgotten_slot_do_not() {
        let secs = Timestamp::from_secs;
        let mut timers = TimerSet::default();
        for (slot, time) in [(1, 5), (2, 3), (3, 4), (1, 5), (2, 9), (3, 1)] {
            timers.set(slot, secs(time));
        }
        timers.forget(3);
        timers.clear(2, secs(9));
        assert_eq!(timers.pop_due(secs(4)), Some((secs(3), 2)));
        assert_eq!(timers.pop_due(secs(4)), None);
        assert_eq!(timers.pop_due(secs(5)), Some((secs(5), 1)));
        assert_eq!(timers.first(), None);
    }
}
