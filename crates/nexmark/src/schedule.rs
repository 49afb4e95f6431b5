//! The predetermined times of events, computed from the rate.

use crate::NexmarkError;

/// The event times of a stream with a constant rate. Event `i` happens at `first + i · 1 s / rate`,
/// and has that time in whole milliseconds, rounded down.
///
/// ```
/// use ardea_nexmark::Schedule;
///
/// let schedule = Schedule::new(-1, 3_000)?;
/// let times: Vec<i64> = (0..7).map(|index| schedule.date_time_ms(index)).collect();
/// assert_eq!(times, [-1, -1, -1, 0, 0, 0, 1]);
/// assert_eq!(schedule.first_index_at(1), 6);
/// # Ok::<(), ardea_nexmark::NexmarkError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    first_ms: i64,
    events_per_second: u64,
}

impl Schedule {
    /// Returns a schedule whose event 0 happens at `first_ms` (milliseconds since the epoch).
    ///
    /// # Errors
    /// [`NexmarkError::Setting`] if `events_per_second` is 0.
    pub fn new(first_ms: i64, events_per_second: u64) -> Result<Self, NexmarkError> {
        if events_per_second == 0 {
            return Err(NexmarkError::setting(
                "events_per_second",
                0,
                "it must be at least 1",
            ));
        }
        Ok(Self {
            first_ms,
            events_per_second,
        })
    }

    /// Returns the time of event 0, in milliseconds since the epoch.
    pub fn first_ms(&self) -> i64 {
        self.first_ms
    }

    /// Returns the number of events in a second of event time.
    pub fn events_per_second(&self) -> u64 {
        self.events_per_second
    }

    /// Returns the time of event `index`, in milliseconds since the epoch; saturates at `i64::MAX`.
    #[inline]
    pub fn date_time_ms(&self, index: u64) -> i64 {
        let after_first_ms = u128::from(index) * 1000 / u128::from(self.events_per_second);
        let date_time_ms = i128::from(self.first_ms) + after_first_ms as i128;
        i64::try_from(date_time_ms).unwrap_or(i64::MAX)
    }

    /// Returns the first event at `date_time_ms` or later, which is the number of earlier events.
    #[inline]
    pub fn first_index_at(&self, date_time_ms: i64) -> u64 {
        let after_first_ms = (i128::from(date_time_ms) - i128::from(self.first_ms)).max(0) as u128;
        let index = (after_first_ms * u128::from(self.events_per_second)).div_ceil(1000);
        u64::try_from(index).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_rate_of_nothing_is_refused() {
        assert!(Schedule::new(0, 0).is_err());
    }

    #[test]
    fn times_beyond_the_end_of_time_stay_there() {
        let schedule = Schedule {
            first_ms: i64::MAX - 1,
            events_per_second: 1,
        };
        assert_eq!(schedule.date_time_ms(1), i64::MAX);
        let slow = Schedule {
            first_ms: i64::MIN,
            events_per_second: u64::MAX,
        };
        assert_eq!(slow.first_index_at(i64::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn the_first_event_at_a_time_carries_it_and_the_one_before_does_not(
            first_ms in -1_000_000_i64..1_000_000,
            rate in 1_u64..3_000_000,
            after_ms in 1_i64..1_000_000,
        ) {
            let schedule = Schedule { first_ms, events_per_second: rate };
            let at_ms = first_ms + after_ms;
            let index = schedule.first_index_at(at_ms);
            prop_assert!(schedule.date_time_ms(index) >= at_ms);
            prop_assert!(schedule.date_time_ms(index - 1) < at_ms);
        }
    }
}
