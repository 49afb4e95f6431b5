//! How long one call may go on before others get their turn.

use std::time::Duration;

use ardea_core::Clock;

/// The longest that a call goes on when it could stop: the engine's usual slice.
const TURN: Duration = Duration::from_micros(100);
/// The most tuples between two looks at the clock, which costs as much as a tuple or two.
const MOST_BETWEEN_LOOKS: u32 = 64;

/// Looks at the clock seldom while tuples are quick, and after each when they are slow.
#[derive(Debug)]
pub(crate) struct Pace<'a> {
    clock: &'a Clock,
    start: Duration,
    looked: Duration,
    stride: u32,
    left: u32,
}

impl<'a> Pace<'a> {
    pub(crate) fn start(clock: &'a Clock) -> Self {
        let now = clock.now();
        Pace {
            clock,
            start: now,
            looked: now,
            stride: 1,
            left: 1,
        }
    }

    /// When the call began.
    pub(crate) fn started(&self) -> Duration {
        self.start
    }

    /// After each tuple: whether it is time to stop.
    #[inline]
    pub(crate) fn is_over(&mut self) -> bool {
        self.left -= 1;
        self.left == 0 && self.look()
    }

    fn look(&mut self) -> bool {
        let now = self.clock.now();
        let took = now.saturating_sub(self.looked);
        self.stride = if took < TURN / 8 {
            (self.stride * 2).min(MOST_BETWEEN_LOOKS)
        } else {
            1
        };
        self.left = self.stride;
        self.looked = now;
        now.saturating_sub(self.start) >= TURN
    }
}
