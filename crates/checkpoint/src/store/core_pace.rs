//! Leaving the core to others now and then, while much is worked at.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

/// For how long the core is kept at a time, about: so long do records wait for it. A kernel whose clock ticks 250 times a second (seen with Linux 6.18) may take
/// it away after 4 ms only, and leave whoever is woken there waiting even where another core is free.
const KEPT: Duration = Duration::from_micros(150);

/// Whoever had to wait for the core keeps it for this part of that time, if it is longer: where all cores are busy, that makes a sixth of one.
const SHARE: u32 = 5;

/// But not longer than this.
const KEPT_MOST: Duration = Duration::from_millis(2);

/// How many small steps are taken between two looks at the clock.
const STEPS: u32 = 1024;

/// When a thread that works beside those on which records flow yields. Cells, since what sorts calls it from a closure.
#[derive(Debug)]
pub(crate) struct CorePace {
    began: Cell<Instant>,
    /// For how long the core is kept this time.
    keeps: Cell<Duration>,
    steps: Cell<u32>,
}

impl CorePace {
    pub fn begin() -> Self {
        CorePace {
            began: Cell::new(Instant::now()),
            keeps: Cell::new(KEPT),
            steps: Cell::new(0),
        }
    }

    /// Yields if the core was kept for long enough. To be called all some 100 µs; costs a look at the clock.
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

    /// The same, for steps that take much less than a look at the clock.
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
        let pace = CorePace::begin();
        let first = pace.began.get();
        while pace.began.get() == first {
            pace.step();
        }
        assert!(pace.began.get() - first >= KEPT);
        assert!((KEPT..=KEPT_MOST).contains(&pace.keeps.get()));
    }
}
