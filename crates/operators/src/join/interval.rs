//! The time bounds of an interval join.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Timestamp};

/// The bounds on the event times of a pair: `left + lower ≤ right ≤ left + upper`.
///
/// ```
/// use std::time::Duration;
/// use ardea_core::Timestamp;
/// use ardea_operators::JoinInterval;
///
/// // Clicks up to a minute after the view, or up to a second before it.
/// let interval = JoinInterval::between(Duration::from_secs(1), Duration::from_secs(60));
/// assert!(interval.holds(Timestamp::from_secs(100), Timestamp::from_secs(160)));
/// assert!(!interval.holds(Timestamp::from_secs(100), Timestamp::from_secs(98)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinInterval {
    lower_micros: i64,
    upper_micros: i64,
}

impl JoinInterval {
    /// Creates an interval: the right record is at most `before` before the left one and at most
    /// `after` after it.
    pub fn between(before: Duration, after: Duration) -> Self {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        JoinInterval {
            lower_micros: -micros(before),
            upper_micros: micros(after),
        }
    }

    /// Creates an interval: the right record is at least `lower_micros` and at most `upper_micros`
    /// microseconds after the left one. Negative numbers are before it.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the lower bound is above the upper one, so that no pair could
    /// match.
    pub fn from_micros(lower_micros: i64, upper_micros: i64) -> Result<Self> {
        if lower_micros > upper_micros {
            return Err(Error::new(
                ErrorCode::InvalidJob,
                format!(
                    "an interval join from {lower_micros} µs to {upper_micros} µs has no pairs"
                ),
            )
            .hint("give the lower bound first"));
        }
        Ok(JoinInterval {
            lower_micros,
            upper_micros,
        })
    }

    /// Returns true if records with these times may be a pair.
    pub fn holds(&self, left: Timestamp, right: Timestamp) -> bool {
        (self.first_right(left)..=self.last_right(left)).contains(&right)
    }

    /// Returns the earliest right time that may match a left record at `left`.
    pub(crate) fn first_right(&self, left: Timestamp) -> Timestamp {
        shift(left, self.lower_micros)
    }

    /// Returns the latest right time that may match a left record at `left`.
    pub(crate) fn last_right(&self, left: Timestamp) -> Timestamp {
        shift(left, self.upper_micros)
    }

    /// Returns the earliest left time that may match a right record at `right`.
    pub(crate) fn first_left(&self, right: Timestamp) -> Timestamp {
        shift_back(right, self.upper_micros)
    }

    /// Returns the latest left time that may match a right record at `right`.
    pub(crate) fn last_left(&self, right: Timestamp) -> Timestamp {
        shift_back(right, self.lower_micros)
    }
}

fn shift(time: Timestamp, micros: i64) -> Timestamp {
    Timestamp::from_micros(time.as_micros().saturating_add(micros))
}

/// Subtracts microseconds from a time. A shift by the negated number would overflow for `i64::MIN`.
fn shift_back(time: Timestamp, micros: i64) -> Timestamp {
    Timestamp::from_micros(time.as_micros().saturating_sub(micros))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Event times, many of them near the minimum or maximum.
    fn times() -> impl Strategy<Value = i64> {
        let (first, last) = (i64::MIN + 1, Timestamp::LAST_EVENT.as_micros());
        prop_oneof![first..first + 8, -8i64..8, last - 8..=last, first..=last]
    }

    fn bounds() -> impl Strategy<Value = i64> {
        prop_oneof![
            -8i64..8,
            Just(i64::MIN),
            Just(i64::MIN + 1),
            Just(i64::MAX),
            any::<i64>()
        ]
    }

    proptest! {
        #[test]
        fn both_sides_see_the_same_pairs_at_any_end_of_time(
            left in times(), right in times(), a in bounds(), b in bounds(),
        ) {
            let (lower, upper) = (a.min(b), a.max(b));
            let apart = i128::from(right) - i128::from(left);
            let is_pair = i128::from(lower) <= apart && apart <= i128::from(upper);
            let interval = JoinInterval::from_micros(lower, upper).unwrap();
            let (left, right) = (Timestamp::from_micros(left), Timestamp::from_micros(right));
            prop_assert_eq!(interval.holds(left, right), is_pair);
            let from_right = interval.first_left(right)..=interval.last_left(right);
            prop_assert_eq!(from_right.contains(&left), is_pair);
        }
    }

    #[test]
    fn an_interval_without_pairs_is_refused() {
        assert_eq!(
            JoinInterval::from_micros(5, 4).unwrap_err().code(),
            ErrorCode::InvalidJob
        );
        assert!(JoinInterval::from_micros(5, 5).is_ok());
    }

    #[test]
    fn the_bounds_of_both_sides_agree() {
        let interval = JoinInterval::from_micros(-2, 5).unwrap();
        let at = Timestamp::from_micros;
        for left in -10..10 {
            for right in -10..10 {
                let seen_from_right = (interval.first_left(at(right))
                    ..=interval.last_left(at(right)))
                    .contains(&at(left));
                assert_eq!(interval.holds(at(left), at(right)), seen_from_right);
            }
        }
    }
}
