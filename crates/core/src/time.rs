//! Event time and epochs.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in event time: microseconds since 1970-01-01 00:00 UTC, negative before.
///
/// Arithmetic saturates: the far past and the far future stay where they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Before all events; also the time of a record that has none.
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    /// After all events; the watermark of a stream that ended.
    pub const MAX: Timestamp = Timestamp(i64::MAX);
    /// The start of 1970, UTC.
    pub const UNIX_EPOCH: Timestamp = Timestamp(0);

    /// From microseconds since the Unix epoch.
    #[inline]
    pub const fn from_micros(micros: i64) -> Self {
        Timestamp(micros)
    }

    /// From milliseconds since the Unix epoch; saturates outside of ±292,000 years.
    #[inline]
    pub const fn from_millis(millis: i64) -> Self {
        Timestamp(millis.saturating_mul(1_000))
    }

    /// From seconds since the Unix epoch; saturates outside of ±292,000 years.
    #[inline]
    pub const fn from_secs(secs: i64) -> Self {
        Timestamp(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the Unix epoch.
    #[inline]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Whole milliseconds since the Unix epoch, rounded down.
    #[inline]
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// The time from `earlier` until `self`, zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0).max(0) as u64)
    }
}

/// Microseconds of a duration, saturating at `i64::MAX`.
#[inline]
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    #[inline]
    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(micros(duration)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;
    #[inline]
    fn sub(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(micros(duration)))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Timestamp::MIN => f.write_str("-inf"),
            Timestamp::MAX => f.write_str("+inf"),
            Timestamp(micros) => write!(f, "{}µs", micros),
        }
    }
}

/// The number of an epoch: a slice of the stream, ended by a marker on every edge.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch that follows.
    pub const fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Timestamp::MAX + Duration::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::MIN - Duration::from_secs(1), Timestamp::MIN);
        assert_eq!(Timestamp::from_secs(i64::MAX), Timestamp::MAX);
    }

    #[test]
    fn milliseconds_round_down_before_1970() {
        assert_eq!(Timestamp::from_micros(-1).as_millis(), -1);
        assert_eq!(Timestamp::from_millis(-5).as_millis(), -5);
    }

    #[test]
    fn a_later_start_gives_no_time_between() {
        assert_eq!(
            Timestamp::from_secs(1).since(Timestamp::from_secs(3)),
            Duration::ZERO
        );
    }
}
