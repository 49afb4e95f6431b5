//! How far apart in time two records may be to belong together.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Timestamp};

/// How far apart in event time the records of a pair may be: `left + lower ≤ right ≤ left + upper`.
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
    /// The right record is at most `before` before the left one and at most `after` after it.
    pub fn between(before: Duration, after: Duration) -> Self {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        JoinInterval {
            lower_micros: -micros(before),
            upper_micros: micros(after),
        }
    }

    /// The right record is at least `lower_micros` and at most `upper_micros` microseconds after the left one; negative numbers
    /// are before it.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the lower bound is above the upper one: no pair could ever be.
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

    /// Whether records of these times may be a pair.
    pub fn holds(&self, left: Timestamp, right: Timestamp) -> bool {
        (self.first_right(left)..=self.last_right(left)).contains(&right)
    }

    /// The earliest right record that a left one at `left` may meet.
    pub(crate) fn first_right(&self, left: Timestamp) -> Timestamp {
        shift(left, self.lower_micros)
    }

    /// The latest right record that a left one at `left` may meet.
    pub(crate) fn last_right(&self, left: Timestamp) -> Timestamp {
        shift(left, self.upper_micros)
    }

    /// The earliest left record that a right one at `right` may meet.
    pub(crate) fn first_left(&self, right: Timestamp) -> Timestamp {
        shift_back(right, self.upper_micros)
    }

    /// The latest left record that a right one at `right` may meet.
    pub(crate) fn last_left(&self, right: Timestamp) -> Timestamp {
        shift_back(right, self.lower_micros)
    }
}

fn shift(time: Timestamp, micros: i64) -> Timestamp {
    Timestamp::from_micros(time.as_micros().saturating_add(micros))
}

/// Not a shift by the negated number: the least of all has none.
fn shift_back(time: Timestamp, micros: i64) -> Timestamp {
    Timestamp::from_micros(time.as_micros().saturating_sub(micros))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Event times, many of them near the ends.
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
