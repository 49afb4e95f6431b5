//! The start and the measured time of a job, by the time of day, so that all its processes share
//! the same start.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ardea_core::Timestamp;

use crate::cluster::Order;

const UNKNOWN: i64 = i64::MAX;

/// Times in microseconds since 1970; [`UNKNOWN`] until they are set.
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

    /// Returns the time at which the first record is due, if it is set.
    pub(crate) fn start(&self) -> Option<Timestamp> {
        let start = self.start.load(Ordering::Acquire);
        (start != UNKNOWN).then(|| Timestamp::from_micros(start))
    }

    /// Returns true if a record due at `due` is measured.
    pub(crate) fn counts(&self, due: Timestamp) -> bool {
        let counts = self.from.load(Ordering::Relaxed)..self.until.load(Ordering::Relaxed);
        counts.contains(&due.as_micros())
    }
}

/// The times of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// The time at which the first record is due.
    pub(crate) start: Timestamp,
    /// The start of the measured time.
    pub(crate) from: Timestamp,
    /// The end of the measured time.
    pub(crate) until: Timestamp,
}

impl Plan {
    /// Returns a run that starts at a whole millisecond after `lead`.
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

    /// Returns the three times in microseconds, as sent to processes.
    pub(crate) fn micros(&self) -> [i64; 3] {
        [self.start, self.from, self.until].map(Timestamp::as_micros)
    }

    /// Returns the start signal.
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
