//! The interval between two calls of a part of the data path that has few records.
//!
//! A wake-up costs about as much as some hundred records. A source with 10,000 records a second
//! that is called for each of them spends most of its CPU time on wake-ups, and so do the steps
//! behind it. Within the latency budget of the node, a source, the receiving end of a network edge
//! or the network thread is called once per interval, and passes on the records of the interval
//! together.

use std::time::Duration;

const FULL_RATE_PERIOD: Duration = Duration::from_micros(100);

/// The decision when a part of the data path may be called again.
///
/// After a call that moved data, the next call waits for the next multiple of the budget on the
/// node's clock, so that all sources of a thread are called in one wake-up. A part that was idle is
/// called at once, and so is one with a high rate, whose wake-ups cost little per record.
#[derive(Clone, Copy, Debug)]
pub struct BatchDelay {
    /// The maximum delay of a record; zero if calls are never delayed.
    budget: Duration,
    /// The distance of the calls from the multiples of the budget.
    offset: Duration,
    /// The amount per [`FULL_RATE_PERIOD`] from which calls are not delayed.
    full_rate: u32,
    /// The start of the latest call that ended idle.
    call_start: Duration,
    /// The amount that had been moved at its end.
    moved: u64,
    /// The time before which there is no call.
    until: Duration,
}

impl BatchDelay {
    /// Returns the delay of a source or receiver, whose amounts are records.
    pub fn of_records(budget: Duration) -> Self {
        BatchDelay {
            budget,
            offset: Duration::ZERO,
            full_rate: 16,
            call_start: Duration::ZERO,
            moved: 0,
            until: Duration::ZERO,
        }
    }

    /// Returns the delay of a network thread, whose amounts are bytes.
    ///
    /// The calls lie between two multiples of the budget: after the sources have sent their
    /// records, and before the receivers are called.
    pub fn of_bytes(budget: Duration) -> Self {
        BatchDelay {
            offset: budget / 2,
            full_rate: 4 << 10,
            ..BatchDelay::of_records(budget)
        }
    }

    /// Returns the time of the next call if it must not begin at `now`.
    #[inline]
    pub fn delay(&self, now: Duration) -> Option<Duration> {
        (now < self.until).then_some(self.until)
    }

    /// Ends a call that began at `start`. `moved` is the amount moved since the start of the
    /// process; `is_idle` is true if nothing was left to do. The calls up to an idle one count as
    /// one.
    pub fn end_call(&mut self, start: Duration, moved: u64, is_idle: bool) {
        if self.budget.is_zero() {
            return;
        }
        self.until = Duration::ZERO;
        if !is_idle {
            return;
        }
        let amount = u128::from(moved.saturating_sub(self.moved));
        let period = start.saturating_sub(self.call_start);
        let has_full_rate = amount * FULL_RATE_PERIOD.as_nanos()
            >= u128::from(self.full_rate) * period.as_nanos().max(FULL_RATE_PERIOD.as_nanos());
        if amount > 0 && !has_full_rate {
            self.until = next_multiple(start + self.offset, self.budget) - self.offset;
        }
        (self.call_start, self.moved) = (start, moved);
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
        let mut source = BatchDelay::of_records(BUDGET);
        assert_eq!(source.delay(at(10_120)), None);
        source.end_call(at(10_120), 1, true);
        assert_eq!(source.delay(at(10_130)), Some(at(10_500)));
        assert_eq!(source.delay(at(10_500)), None);
        source.end_call(at(10_500), 6, true);
        assert_eq!(source.delay(at(10_500)), Some(at(11_000)));
    }

    #[test]
    fn an_idle_source_is_called_at_once() {
        let mut source = BatchDelay::of_records(BUDGET);
        source.end_call(at(10_120), 1, true);
        source.end_call(at(10_500), 1, true);
        assert_eq!(source.delay(at(10_510)), None);
    }

    #[test]
    fn a_source_with_a_high_rate_is_called_at_once() {
        let mut source = BatchDelay::of_records(BUDGET);
        source.end_call(at(10_000), 1, true);
        source.end_call(at(10_500), 81, true);
        assert_eq!(source.delay(at(10_510)), None, "16 per 100 us");
        source.end_call(at(10_600), 96, true);
        assert_eq!(source.delay(at(10_610)), Some(at(11_000)), "15 in 100 us");
        source.end_call(at(11_000), 96 + 4_000, true);
        source.end_call(at(11_010), 96 + 4_015, true);
        assert_eq!(source.delay(at(11_020)), Some(at(11_500)), "15 at once");
    }

    #[test]
    fn a_source_with_more_records_or_without_room_is_called_at_once() {
        let mut source = BatchDelay::of_records(BUDGET);
        source.end_call(at(10_000), 1, false);
        assert_eq!(source.delay(at(10_010)), None);
        source.end_call(at(10_020), 1, true);
        assert_eq!(source.delay(at(10_030)), Some(at(10_500)), "after the rest");
    }

    #[test]
    fn without_a_budget_a_source_is_called_at_once() {
        let mut source = BatchDelay::of_records(Duration::ZERO);
        source.end_call(at(10_120), 1, true);
        assert_eq!(source.delay(at(10_130)), None);
    }

    #[test]
    fn a_network_thread_is_called_between_two_calls_of_the_sources() {
        let mut thread = BatchDelay::of_bytes(BUDGET);
        thread.end_call(at(10_120), 100, true);
        assert_eq!(thread.delay(at(10_130)), Some(at(10_250)));
        thread.end_call(at(10_250), 200, true);
        assert_eq!(thread.delay(at(10_260)), Some(at(10_750)));
        thread.end_call(at(10_750), 40_000, true);
        assert_eq!(thread.delay(at(10_760)), None, "4 KiB per 100 us");
    }
}
