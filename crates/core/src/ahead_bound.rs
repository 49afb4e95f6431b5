//! The bound on how far one record may advance event time.

use std::fmt::{self, Display};
use std::time::Duration;

use crate::{Clock, Timestamp};

/// A check that rejects records without an event time, and those whose event time is too far in the
/// future.
///
/// The limit is the later of the latest accepted event time and the wall clock, plus the bound. It
/// only rises; the clock is read only when a record exceeds it.
///
/// ```
/// use std::time::Duration;
/// use ardea_core::{AheadBound, Clock, Timestamp};
///
/// let mut bound = AheadBound::new(Some(Duration::from_secs(60)), Timestamp::MIN, Clock::system());
/// assert!(bound.take(Timestamp::from_secs(1_700_000_000)).is_ok());
/// assert!(bound.take(Timestamp::from_secs(99_000_000_000)).is_err());
/// assert_eq!(bound.highest(), Timestamp::from_secs(1_700_000_000));
/// ```
#[derive(Clone, Debug)]
pub struct AheadBound {
    ahead: Option<Duration>,
    /// Event times up to this limit are accepted without reading the clock.
    limit: Timestamp,
    /// The latest accepted event time.
    highest: Timestamp,
    clock: Clock,
}

/// The reason why an event time was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadTime {
    /// The record has no event time.
    Missing,
    /// The time is after the last possible event time.
    OutOfRange,
    /// The time is further ahead than the bound allows.
    TooFarAhead {
        /// The time of the record.
        time: Timestamp,
        /// The maximum distance from the later of `highest` and `wall`.
        ahead: Duration,
        /// The latest accepted event time before the record; [`Timestamp::MIN`] if there is none.
        highest: Timestamp,
        /// The wall clock.
        wall: Timestamp,
    },
}

impl AheadBound {
    /// Creates a bound of `ahead` for a stream whose latest event time is `highest`
    /// ([`Timestamp::MIN`] if the stream had no record yet). If `ahead` is `None`, there is no
    /// bound.
    pub fn new(ahead: Option<Duration>, highest: Timestamp, clock: Clock) -> Self {
        AheadBound {
            ahead,
            limit: match ahead {
                Some(ahead) if highest != Timestamp::MIN => limit(highest, ahead),
                Some(_) => Timestamp::MIN,
                None => Timestamp::LAST_EVENT,
            },
            highest,
            clock,
        }
    }

    /// Checks the event time of a record, and accepts it if it is within the bound.
    ///
    /// # Errors
    /// The reason for which the record must be rejected.
    #[inline]
    pub fn take(&mut self, time: Timestamp) -> Result<(), BadTime> {
        if time > self.limit || time == Timestamp::MIN {
            self.take_beyond(time)?;
        }
        self.highest = self.highest.max(time);
        Ok(())
    }

    /// Returns the event time up to which records are accepted without reading the clock.
    ///
    /// A loop over many records compares with this limit, reports accepted times with
    /// [`advance`](Self::advance), and calls [`take`](Self::take) for a time beyond it.
    #[inline]
    pub fn limit(&self) -> Timestamp {
        self.limit
    }

    /// Records the latest of a group of accepted event times, none of which exceeds the limit.
    #[inline]
    pub fn advance(&mut self, latest: Timestamp) {
        self.highest = self.highest.max(latest);
    }

    /// Raises the limit by the current clock, and checks `time` against it.
    #[cold]
    fn take_beyond(&mut self, time: Timestamp) -> Result<(), BadTime> {
        match time {
            Timestamp::MIN => return Err(BadTime::Missing),
            Timestamp::MAX => return Err(BadTime::OutOfRange),
            _ => {}
        }
        let Some(ahead) = self.ahead else {
            return Ok(());
        };
        let wall = self.clock.wall();
        self.limit = limit(self.highest.max(wall), ahead);
        match time > self.limit {
            false => Ok(()),
            true => Err(BadTime::TooFarAhead {
                time,
                ahead,
                highest: self.highest,
                wall,
            }),
        }
    }

    /// Returns the latest accepted event time.
    pub fn highest(&self) -> Timestamp {
        self.highest
    }
}

/// Returns `base` plus `ahead`, at most [`Timestamp::LAST_EVENT`].
fn limit(base: Timestamp, ahead: Duration) -> Timestamp {
    (base + ahead).min(Timestamp::LAST_EVENT)
}

impl Display for BadTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadTime::Missing => f.write_str("it has no event time"),
            BadTime::OutOfRange => f.write_str("its event time is out of range"),
            BadTime::TooFarAhead {
                time,
                ahead,
                highest,
                wall,
            } => {
                write!(
                    f,
                    "its event time {time} is more than {ahead:?} ahead of the clock, which says {wall}"
                )?;
                match *highest {
                    Timestamp::MIN => {}
                    highest => write!(f, ", and of the latest event time before it, {highest}")?,
                }
                f.write_str("; the bound is WatermarkPolicy::max_ahead")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    /// Returns a bound of one hour with a clock that shows ten hours.
    fn hour() -> (AheadBound, ManualClock) {
        let hand = ManualClock::new();
        hand.advance(10 * HOUR);
        let bound = AheadBound::new(Some(HOUR), Timestamp::MIN, hand.clock());
        (bound, hand)
    }

    #[test]
    fn a_recording_of_the_past_may_have_any_gaps() {
        let (mut bound, _) = hour();
        for time in [-1_000_000_000, -5, 3, 36_000, 39_600] {
            assert_eq!(bound.take(at(time)), Ok(()), "{time}");
        }
    }

    #[test]
    fn a_first_record_is_compared_with_the_clock_and_others_also_with_the_latest_before() {
        let (mut bound, hand) = hour();
        assert!(bound.take(at(39_601)).is_err());
        assert_eq!(bound.take(at(39_600)), Ok(()));
        assert_eq!(
            bound.take(at(43_200)),
            Ok(()),
            "an hour after the one before"
        );
        assert!(bound.take(at(46_801)).is_err());
        hand.advance(4 * HOUR);
        assert_eq!(bound.take(at(46_801)), Ok(()), "the clock has gone on");
    }

    #[test]
    fn a_refused_time_says_what_it_was_compared_with() {
        let (mut bound, _) = hour();
        bound.take(at(1)).unwrap();
        let text = bound.take(Timestamp::LAST_EVENT).unwrap_err().to_string();
        for part in [
            "3600s",
            "1970-01-01T10:00:00Z",
            "1970-01-01T00:00:01Z",
            "max_ahead",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(bound.highest(), at(1));
    }

    #[test]
    fn without_a_bound_only_the_ends_of_time_are_refused() {
        let mut bound = AheadBound::new(None, Timestamp::MIN, ManualClock::new().clock());
        assert_eq!(bound.take(Timestamp::LAST_EVENT), Ok(()));
        assert_eq!(bound.take(Timestamp::FIRST_EVENT), Ok(()));
        assert_eq!(bound.take(Timestamp::MAX), Err(BadTime::OutOfRange));
        assert_eq!(bound.take(Timestamp::MIN), Err(BadTime::Missing));
    }

    #[test]
    fn the_greatest_bound_still_refuses_the_end_of_time() {
        for highest in [Timestamp::MIN, at(1)] {
            let clock = ManualClock::new().clock();
            let mut bound = AheadBound::new(Some(Duration::MAX), highest, clock);
            assert_eq!(bound.take(Timestamp::LAST_EVENT), Ok(()));
            assert_eq!(bound.take(Timestamp::MAX), Err(BadTime::OutOfRange));
        }
    }

    proptest! {
        #[test]
        fn the_limit_that_is_kept_decides_as_one_computed_for_each_record(
            steps in prop::collection::vec((prop_oneof![any::<i64>(), -9_999i64..99_999], 0u64..9_999), 0..40),
        ) {
            let (mut bound, hand) = hour();
            let mut highest = Timestamp::MIN;
            for (time, passed) in steps {
                hand.advance(Duration::from_secs(passed));
                let time = at(time);
                let limit = highest.max(hand.clock().wall()) + HOUR;
                let is_within = time.is_event_time() && time <= limit;
                prop_assert_eq!(bound.take(time).is_ok(), is_within);
                if is_within {
                    highest = highest.max(time);
                }
            }
        }
    }
}
