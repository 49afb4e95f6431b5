//! The interval between two calls of a source with few records.
//!
//! A wake-up costs about as much as some hundred records. A source with 10,000 records a second
//! that is called for each of them spends most of its CPU time on wake-ups, and so do the steps
//! behind it. Within the latency budget of the node, the source is called once per interval and
//! emits the records of the interval together.

use std::time::Duration;

/// Records per [`FULL_RATE_PERIOD`] from which a source is called without delay.
const FULL_RATE_RECORDS: u128 = 16;

const FULL_RATE_PERIOD: Duration = Duration::from_micros(100);

/// The decision when a source may be called again.
///
/// After a slice with records, the next slice waits for the next multiple of the budget on the
/// node's clock, so that all sources of a thread are called in one wake-up. A source that was idle
/// is called at once, and so is one with a high rate, whose wake-ups cost little per record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceDelay {
    /// The maximum delay of a record; zero if sources are called at once.
    budget: Duration,
    /// The start of the latest slice.
    slice_start: Duration,
    /// The number of records that the source has emitted in its life.
    emitted: u64,
    /// The time before which the source is not called.
    until: Duration,
}

impl SourceDelay {
    pub(crate) fn new(budget: Duration) -> Self {
        SourceDelay {
            budget,
            slice_start: Duration::ZERO,
            emitted: 0,
            until: Duration::ZERO,
        }
    }

    /// Returns the time of the next slice if it must not begin at `now`.
    #[inline]
    pub(crate) fn delay(&self, now: Duration) -> Option<Duration> {
        (now < self.until).then_some(self.until)
    }

    /// Ends a slice that began at `start`, after which the source had emitted `emitted` records in
    /// its life. `is_idle` is true if the source had no more records and its output was accepted.
    pub(crate) fn end_slice(&mut self, start: Duration, emitted: u64, is_idle: bool) {
        if self.budget.is_zero() {
            return;
        }
        let records = u128::from(emitted.saturating_sub(self.emitted));
        let period = start.saturating_sub(self.slice_start);
        let has_full_rate = records * FULL_RATE_PERIOD.as_nanos()
            >= FULL_RATE_RECORDS * period.as_nanos().max(FULL_RATE_PERIOD.as_nanos());
        self.until = match is_idle && records > 0 && !has_full_rate {
            true => next_multiple(start, self.budget),
            false => Duration::ZERO,
        };
        (self.slice_start, self.emitted) = (start, emitted);
    }
}

/// Returns the first multiple of `period` after `time`.
fn next_multiple(time: Duration, period: Duration) -> Duration {
    let period = period.as_nanos().max(1);
    let next = (time.as_nanos() / period + 1).saturating_mul(period);
    Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_micros(500);

    fn at(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn a_source_with_few_records_is_called_at_multiples_of_the_budget() {
        let mut source = SourceDelay::new(BUDGET);
        assert_eq!(source.delay(at(10_120)), None);
        source.end_slice(at(10_120), 1, true);
        assert_eq!(source.delay(at(10_130)), Some(at(10_500)));
        assert_eq!(source.delay(at(10_500)), None);
        source.end_slice(at(10_500), 6, true);
        assert_eq!(source.delay(at(10_500)), Some(at(11_000)));
    }

    #[test]
    fn an_idle_source_is_called_at_once() {
        let mut source = SourceDelay::new(BUDGET);
        source.end_slice(at(10_120), 1, true);
        source.end_slice(at(10_500), 1, true);
        assert_eq!(source.delay(at(10_510)), None);
    }

    #[test]
    fn a_source_with_a_high_rate_is_called_at_once() {
        let mut source = SourceDelay::new(BUDGET);
        source.end_slice(at(10_000), 1, true);
        source.end_slice(at(10_500), 81, true);
        assert_eq!(source.delay(at(10_510)), None, "16 per 100 us");
        source.end_slice(at(10_600), 96, true);
        assert_eq!(source.delay(at(10_610)), Some(at(11_000)), "15 in 100 us");
        source.end_slice(at(11_000), 96 + 4_000, true);
        source.end_slice(at(11_010), 96 + 4_015, true);
        assert_eq!(source.delay(at(11_020)), Some(at(11_500)), "15 at once");
    }

    #[test]
    fn a_source_with_more_records_or_without_room_is_called_at_once() {
        let mut source = SourceDelay::new(BUDGET);
        source.end_slice(at(10_000), 1, false);
        assert_eq!(source.delay(at(10_010)), None);
    }

    #[test]
    fn without_a_budget_a_source_is_called_at_once() {
        let mut source = SourceDelay::new(Duration::ZERO);
        source.end_slice(at(10_120), 1, true);
        assert_eq!(source.delay(at(10_130)), None);
    }
}
