//! Leaving the core to others now and then, while much is worked at.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

/// For how long the core is kept at a time, about: so long do records wait for it. A kernel whose clock ticks 250 times a second takes it
/// away after 4 ms, and leaves whoever is woken there waiting even where another core is free.
const TURN: Duration = Duration::from_micros(150);

/// Whoever had to wait for the core keeps it for this part of that time, if it is longer: where all cores are busy, that makes a sixth of one.
const SHARE: u32 = 5;

/// How many small steps are taken between two looks at the clock.
const STEPS: u32 = 1024;

/// The turns of a thread that works beside those on which records flow.
#[derive(Debug)]
pub(crate) struct Turns {
    began: Cell<Instant>,
    lasts: Cell<Duration>,
    steps: Cell<u32>,
}

impl Turns {
    pub fn begin() -> Self {
        Turns {
            began: Cell::new(Instant::now()),
            lasts: Cell::new(TURN),
            steps: Cell::new(0),
        }
    }

    /// To be called several times a turn: at its end the thread yields.
    pub fn look(&self) {
        let now = Instant::now();
        if now.duration_since(self.began.get()) < self.lasts.get() {
            return;
        }
        thread::yield_now();
        let again = Instant::now();
        let waited = again.duration_since(now);
        self.began.set(again);
        self.lasts.set(TURN.max(waited / SHARE));
    }

    /// The same, for steps that take much less than a look at the clock.
    #[inline]
    pub fn step(&self) {
        let steps = self.steps.get() + 1;
        self.steps.set(steps % STEPS);
        if steps == STEPS {
            self.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_and_another_one_begins_however_small_the_steps_are() {
        let turns = Turns::begin();
        let first = turns.began.get();
        while turns.began.get() == first {
            turns.step();
        }
        assert!(turns.began.get() - first >= TURN);
        assert!(turns.lasts.get() >= TURN);
    }
}
