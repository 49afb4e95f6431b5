//! The start and the measured interval of a run over several processes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Times in nanoseconds of the machine's monotonic clock; `u64::MAX` until they are set.
#[derive(Debug)]
pub(crate) struct Times {
    /// The time at which the first tuple is due.
    start: AtomicU64,
    /// The start of the measured interval.
    from: AtomicU64,
    /// The end of the measured interval.
    until: AtomicU64,
}

impl Times {
    pub(crate) fn unknown() -> Self {
        Times {
            start: AtomicU64::new(u64::MAX),
            from: AtomicU64::new(u64::MAX),
            until: AtomicU64::new(u64::MAX),
        }
    }

    pub(crate) fn set(&self, start: u64, from: u64, until: u64) {
        self.from.store(from, Ordering::Relaxed);
        self.until.store(until, Ordering::Relaxed);
        self.start.store(start, Ordering::Release);
    }

    /// Returns the time at which the first tuple is due, if it is set.
    pub(crate) fn start(&self) -> Option<u64> {
        let start = self.start.load(Ordering::Acquire);
        (start != u64::MAX).then_some(start)
    }

    pub(crate) fn from(&self) -> u64 {
        self.from.load(Ordering::Relaxed)
    }

    pub(crate) fn until(&self) -> u64 {
        self.until.load(Ordering::Relaxed)
    }
}
