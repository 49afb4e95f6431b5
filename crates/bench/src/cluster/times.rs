//! When a run over several processes begins, and what of it counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// In nanoseconds of the machine's monotonic clock.
#[derive(Debug)]
pub(crate) struct Times {
    /// When the first tuple is due; never, as long as nobody has said so.
    start: AtomicU64,
    /// Latencies count of what is due from then…
    from: AtomicU64,
    /// … until then.
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

    /// When the first tuple is due, if that is known.
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
