//! The time limit of one call, after which the processor yields.

use std::time::Duration;

use ardea_core::Clock;

/// The maximum duration of a call that can yield: the engine's usual time slice.
const TURN: Duration = Duration::from_micros(100);
/// The maximum number of tuples between clock reads, each of which costs as much as a tuple or two.
const MAX_STRIDE: u32 = 64;

/// A timer that reads the clock rarely while tuples are quick, and after each tuple when tuples are
/// slow.
#[derive(Debug)]
pub(crate) struct CallBudget<'a> {
    clock: &'a Clock,
    start: Duration,
    last_read: Duration,
    stride: u32,
    left: u32,
}

impl<'a> CallBudget<'a> {
    pub(crate) fn start(clock: &'a Clock) -> Self {
        let now = clock.now();
        CallBudget {
            clock,
            start: now,
            last_read: now,
            stride: 1,
            left: 1,
        }
    }

    /// Returns the start time of the call.
    pub(crate) fn started(&self) -> Duration {
        self.start
    }

    /// Returns true if the time is over. Must be called after each tuple.
    #[inline]
    pub(crate) fn is_over(&mut self) -> bool {
        self.left -= 1;
        self.left == 0 && self.read_clock()
    }

    fn read_clock(&mut self) -> bool {
        let now = self.clock.now();
        let took = now.saturating_sub(self.last_read);
        self.stride = if took < TURN / 8 {
            (self.stride * 2).min(MAX_STRIDE)
        } else {
            1
        };
        self.left = self.stride;
        self.last_read = now;
        now.saturating_sub(self.start) >= TURN
    }
}
