//! Clock of a member.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since a member started. Includes the time that the machine was suspended, unlike
/// [`std::time::Instant`], so that a lease is found to be over after a resume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Duration,
}

impl Clock {
    /// Starts the clock.
    pub fn start() -> Self {
        Clock {
            began: since_boot(),
        }
    }

    /// Returns the time since the start.
    #[inline]
    pub fn now(&self) -> Duration {
        since_boot().saturating_sub(self.began)
    }
}

#[inline]
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    // Both are non-negative: the clock counts from boot.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
