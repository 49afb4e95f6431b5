//! The clock of a member.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since a member began. It goes on while the machine sleeps: whoever wakes up finds that its lease is over, which [`std::time::Instant`]
/// would not tell it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Duration,
}

impl Clock {
    /// Begins now.
    pub fn start() -> Self {
        Clock {
            began: since_boot(),
        }
    }

    /// How long ago it began.
    #[inline]
    pub fn now(&self) -> Duration {
        since_boot().saturating_sub(self.began)
    }
}

#[inline]
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    // Neither is negative: the machine was booted before.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
