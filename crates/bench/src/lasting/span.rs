//! When a job begins, and what of it counts, by the time of day: all its processes have to take the same time for the beginning.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ardea_core::Timestamp;

use crate::cluster::Order;

const UNKNOWN: i64 = i64::MAX;

/// In microseconds since 1970.
#[derive(Debug)]
pub(crate) struct Span {
    start: AtomicI64,
    from: AtomicI64,
    until: AtomicI64,
}

impl Span {
    pub(crate) fn unknown() -> Self {
        Span {
            start: AtomicI64::new(UNKNOWN),
            from: AtomicI64::new(UNKNOWN),
            until: AtomicI64::new(UNKNOWN),
        }
    }

    pub(crate) fn set(&self, start: i64, from: i64, until: i64) {
        self.from.store(from, Ordering::Relaxed);
        self.until.store(until, Ordering::Relaxed);
        self.start.store(start, Ordering::Release);
    }

    /// When the first record is due, if that is known.
    pub(crate) fn start(&self) -> Option<Timestamp> {
        let start = self.start.load(Ordering::Acquire);
        (start != UNKNOWN).then(|| Timestamp::from_micros(start))
    }

    /// Whether what was due then is measured.
    pub(crate) fn counts(&self, due: Timestamp) -> bool {
        let counts = self.from.load(Ordering::Relaxed)..self.until.load(Ordering::Relaxed);
        counts.contains(&due.as_micros())
    }
}

/// The moments of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// When the first record is due.
    pub(crate) start: Timestamp,
    /// Latencies count of what is due from then on…
    pub(crate) from: Timestamp,
    /// … until then.
    pub(crate) until: Timestamp,
}

impl Plan {
    /// A run that begins at a whole millisecond behind `lead`.
    pub(crate) fn after(
        now: Timestamp,
        lead: Duration,
        warmup: Duration,
        duration: Duration,
    ) -> Self {
        let start = Timestamp::from_millis((now + lead).as_millis() + 1);
        let from = start + warmup;
        Plan {
            start,
            from,
            until: from + duration,
        }
    }

    /// In three numbers, as processes are told.
    pub(crate) fn micros(&self) -> [i64; 3] {
        [self.start, self.from, self.until].map(Timestamp::as_micros)
    }

    /// The word to begin.
    pub(crate) fn order(&self) -> Order {
        let [start, from, until] = self.micros();
        Order::BeginAt { start, from, until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_counts_before_it_is_known_what_does() {
        let span = Span::unknown();
        let at = Timestamp::from_secs;
        assert_eq!(span.start(), None);
        assert!(!span.counts(at(5)));
        let second = Duration::from_secs(1);
        let plan = Plan::after(at(1), 2 * second, second, 2 * second);
        let [start, from, until] = plan.micros();
        span.set(start, from, until);
        assert_eq!(span.start(), Some(plan.start));
        assert!(plan.start > at(3));
        assert!(span.counts(plan.from) && !span.counts(plan.start) && !span.counts(plan.until));
    }
}
