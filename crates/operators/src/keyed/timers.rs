//! Deadlines of slots in order of time.

use std::collections::BTreeSet;
use std::time::Duration;

use ardea_core::Timestamp;

/// A point in event time or in processing time.
pub(crate) trait Deadline: Copy + Ord {
    /// The minimum.
    const FIRST: Self;
}

impl Deadline for Timestamp {
    const FIRST: Self = Timestamp::MIN;
}

impl Deadline for Duration {
    const FIRST: Self = Duration::ZERO;
}

/// Deadlines of slots, each at most once, in order of time, then of slots.
///
/// The deadlines are stored in two orders, so that all deadlines of a slot can be removed at once.
/// All operations are logarithmic.
#[derive(Clone, Debug)]
pub(crate) struct TimerSet<D> {
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
    pub(crate) fn set(&mut self, slot: u32, deadline: D) {
        self.by_time.insert((deadline, slot));
        self.by_slot.insert((slot, deadline));
    }

    /// Removes one deadline of a slot.
    pub(crate) fn clear(&mut self, slot: u32, deadline: D) {
        self.by_time.remove(&(deadline, slot));
        self.by_slot.remove(&(slot, deadline));
    }

    /// Returns all deadlines of a slot.
    pub(crate) fn of(&self, slot: u32) -> impl Iterator<Item = D> {
        let all = self.by_slot.range((slot, D::FIRST)..);
        all.take_while(move |(owner, _)| *owner == slot)
            .map(|(_, deadline)| *deadline)
    }

    /// Removes all deadlines of a slot.
    pub(crate) fn forget(&mut self, slot: u32) {
        while let Some(&(owner, deadline)) = self.by_slot.range((slot, D::FIRST)..).next() {
            if owner != slot {
                break;
            }
            self.clear(slot, deadline);
        }
    }

    /// Returns the first deadline and its slot.
    #[inline]
    pub(crate) fn first(&self) -> Option<(D, u32)> {
        self.by_time.first().copied()
    }

    /// Returns the first deadline and its slot, if it is not after `until`.
    #[inline]
    pub(crate) fn first_due(&self, until: D) -> Option<(D, u32)> {
        self.first().filter(|(deadline, _)| *deadline <= until)
    }

    /// Removes and returns the first deadline, if it is not after `until`.
    #[inline]
    pub(crate) fn pop_due(&mut self, until: D) -> Option<(D, u32)> {
        let (deadline, slot) = self.first_due(until)?;
        self.clear(slot, deadline);
        Some((deadline, slot))
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
