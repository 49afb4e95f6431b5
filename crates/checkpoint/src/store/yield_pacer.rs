//! Cooperative yielding of the CPU during long background work.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

/// The approximate time between two yields, which bounds the delay of record processing. The
/// kernel's own preemption may come only after 4 ms (250 Hz tick, seen with Linux 6.18), even while
/// another core is idle.
const KEPT: Duration = Duration::from_micros(150);

/// After a wait for the core, the next slice is the waiting time divided by this number, if this is
/// longer. The thread thus gets a sixth of a fully loaded core.
const SHARE: u32 = 5;

/// The maximum duration of a slice between two yields.
const KEPT_MOST: Duration = Duration::from_millis(2);

/// The number of small steps between two clock reads.
const STEPS: u32 = 1024;

/// Yields the CPU regularly, on a background thread that competes with record processing. Its
/// fields are cells, since a sort comparator calls it.
#[derive(Debug)]
pub(crate) struct YieldPacer {
    began: Cell<Instant>,
    /// The length of the current slice.
    keeps: Cell<Duration>,
    steps: Cell<u32>,
}

impl YieldPacer {
    pub fn begin() -> Self {
        YieldPacer {
            began: Cell::new(Instant::now()),
            keeps: Cell::new(KEPT),
            steps: Cell::new(0),
        }
    }

    /// Yields if the current slice is over. To be called about every 100 µs; costs a clock read.
    pub fn yield_if_due(&self) {
        let now = Instant::now();
        if now.duration_since(self.began.get()) < self.keeps.get() {
            return;
        }
        thread::yield_now();
        let again = Instant::now();
        let waited = again.duration_since(now);
        self.began.set(again);
        self.keeps.set((waited / SHARE).clamp(KEPT, KEPT_MOST));
    }

    /// Counts a step of the work that is much cheaper than a clock read. Yields if a yield is due.
    #[inline]
    pub fn step(&self) {
        let steps = self.steps.get() + 1;
        self.steps.set(steps % STEPS);
        if steps == STEPS {
            self.yield_if_due();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_left_however_small_the_steps_are() {
        let pace = YieldPacer::begin();
        let first = pace.began.get();
        while pace.began.get() == first {
            pace.step();
        }
        assert!(pace.began.get() - first >= KEPT);
        assert!((KEPT..=KEPT_MOST).contains(&pace.keeps.get()));
    }
}
