//! The timers of a thread's tasklets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// The deadlines of a thread's tasklets, on the node's monotonic clock; one per tasklet counts.
///
/// A later deadline that is replaced by an earlier one stays in the heap, and is skipped when its
/// time comes. Cost: O(log n), amortised.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Duration, u32)>>,
    armed: Vec<Option<Duration>>,
}

impl Timers {
    /// Wakes `tasklet` at `deadline`, unless an earlier deadline is set.
    pub(super) fn arm(&mut self, tasklet: u32, deadline: Duration) {
        let index = tasklet as usize;
        if self.armed.len() <= index {
            self.armed.resize(index + 1, None);
        }
        if self.armed[index].is_none_or(|armed| deadline < armed) {
            self.armed[index] = Some(deadline);
            self.heap.push(Reverse((deadline, tasklet)));
            self.sweep();
        }
    }

    /// Removes the deadline of a tasklet that ended.
    pub(super) fn disarm(&mut self, tasklet: u32) {
        if let Some(armed) = self.armed.get_mut(tasklet as usize) {
            *armed = None;
        }
    }

    /// Drops outdated deadlines once they are the majority, so that those of ended tasklets don't
    /// accumulate.
    fn sweep(&mut self) {
        if self.heap.len() > 2 * self.armed.len() + 64 {
            let armed = &self.armed;
            self.heap
                .retain(|Reverse((deadline, tasklet))| armed[*tasklet as usize] == Some(*deadline));
        }
    }

    /// Returns the earliest deadline, which may be a removed one.
    pub(super) fn next(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// Takes a tasklet whose deadline has passed.
    pub(super) fn expired(&mut self, now: Duration) -> Option<u32> {
        while let Some(&Reverse((deadline, tasklet))) = self.heap.peek() {
            if deadline > now {
                return None;
            }
            self.heap.pop();
            let armed = &mut self.armed[tasklet as usize];
            if *armed == Some(deadline) {
                *armed = None;
                return Some(tasklet);
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn only_the_earliest_deadline_of_a_tasklet_counts() {
        let mut timers = Timers::default();
        timers.arm(3, at(20));
        timers.arm(3, at(10));
        timers.arm(3, at(30));
        timers.arm(1, at(15));
        assert_eq!(timers.expired(at(9)), None);
        assert_eq!(timers.expired(at(40)), Some(3));
        assert_eq!(timers.expired(at(40)), Some(1));
        assert_eq!(timers.expired(at(40)), None);
    }

    #[test]
    fn far_deadlines_of_ended_tasklets_do_not_pile_up() {
        let mut timers = Timers::default();
        timers.arm(1, at(5_000_000));
        for job in 0..10_000 {
            timers.arm(0, at(1_000_000 + job));
            timers.disarm(0);
        }
        assert!(timers.heap.len() < 100, "{} deadlines", timers.heap.len());
        assert_eq!(timers.expired(at(6_000_000)), Some(1));
    }

    #[test]
    fn a_disarmed_tasklet_is_not_woken() {
        let mut timers = Timers::default();
        timers.arm(0, at(1));
        timers.disarm(0);
        assert_eq!(timers.expired(at(2)), None);
    }
}
