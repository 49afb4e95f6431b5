//! The time for which an idle thread spins before it sleeps.

use std::time::Duration;

/// An adaptive spin time. Spinning wakes faster but burns CPU. The time doubles when work arrived
/// while spinning and halves when none did, down to zero. At zero only every 64th rest spins, to
/// detect that the load has changed.
#[derive(Debug)]
pub struct AdaptiveSpin {
    most: Duration,
    current: Duration,
    rests: u32,
}

impl AdaptiveSpin {
    /// Creates a spin time of at most `most`.
    pub fn up_to(most: Duration) -> Self {
        AdaptiveSpin {
            most,
            current: most,
            rests: 0,
        }
    }

    /// Returns the time to spin in this rest.
    pub fn next_spin(&mut self) -> Duration {
        self.rests = self.rests.wrapping_add(1);
        if self.rests.is_multiple_of(64) {
            self.most
        } else {
            self.current
        }
    }

    /// Adapts the time; `found_work` is true if work arrived while spinning.
    pub fn learn(&mut self, found_work: bool) {
        self.current = if found_work {
            (self.current * 2).clamp(self.most / 8, self.most)
        } else {
            Duration::from_nanos((self.current / 2).as_nanos() as u64 / 1_000 * 1_000)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(10);

    #[test]
    fn looking_in_vain_ends_and_is_tried_again_now_and_then() {
        let mut patience = AdaptiveSpin::up_to(MOST);
        let mut looked = 0;
        for _ in 0..640 {
            looked += u32::from(!patience.next_spin().is_zero());
            patience.learn(false);
        }
        assert!((10..40).contains(&looked), "{looked} of 640");
    }

    #[test]
    fn looking_that_pays_is_taken_up_again() {
        let mut patience = AdaptiveSpin::up_to(MOST);
        (0..100).for_each(|_| patience.learn(false));
        (0..10).for_each(|_| patience.learn(true));
        assert_eq!(patience.next_spin(), MOST);
    }
}
