//! Event time and epochs.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in event time: microseconds since 1970-01-01 00:00 UTC, negative before.
///
/// Arithmetic saturates at both ends.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Before all events; also the time of a record without event time.
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    /// After all events; the watermark of a stream that has ended.
    pub const MAX: Timestamp = Timestamp(i64::MAX);
    /// The earliest possible event time.
    pub const FIRST_EVENT: Timestamp = Timestamp(i64::MIN + 1);
    /// The latest possible event time; only the end of a stream is after it.
    pub const LAST_EVENT: Timestamp = Timestamp(i64::MAX - 1);
    /// The start of 1970, UTC.
    pub const UNIX_EPOCH: Timestamp = Timestamp(0);

    /// Creates a timestamp from microseconds since the Unix epoch.
    #[inline]
    pub const fn from_micros(micros: i64) -> Self {
        Timestamp(micros)
    }

    /// Creates a timestamp from milliseconds since the Unix epoch; saturates outside of ±292,000
    /// years.
    #[inline]
    pub const fn from_millis(millis: i64) -> Self {
        Timestamp(millis.saturating_mul(1_000))
    }

    /// Creates a timestamp from seconds since the Unix epoch; saturates outside of ±292,000 years.
    #[inline]
    pub const fn from_secs(secs: i64) -> Self {
        Timestamp(secs.saturating_mul(1_000_000))
    }

    /// Returns the microseconds since the Unix epoch.
    #[inline]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the whole milliseconds since the Unix epoch, rounded down.
    #[inline]
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Returns true if an event can have this time: unless it is [`MIN`](Self::MIN), which means no
    /// time, or [`MAX`](Self::MAX), the watermark of a stream that has ended.
    #[inline]
    pub const fn is_event_time(self) -> bool {
        self.0 != i64::MIN && self.0 != i64::MAX
    }

    /// Returns the time from `earlier` until `self`, zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0).max(0) as u64)
    }
}

/// Returns the microseconds of a duration, saturating at `i64::MAX`.
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

/// Formats as RFC 3339 in UTC: `2013-01-01T10:00:00Z`, with as many decimals as needed.
///
/// Days are converted to dates of the proleptic Gregorian calendar after Howard Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms".
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Timestamp::MIN => return f.write_str("-inf"),
            Timestamp::MAX => return f.write_str("+inf"),
            _ => {}
        }
        const DAY_SECS: i64 = 86_400;
        const ERA_DAYS: i64 = 146_097;
        let (secs, micros) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000));
        let (days, second) = (
            secs.div_euclid(DAY_SECS) + 719_468,
            secs.rem_euclid(DAY_SECS),
        );
        let (era, day_of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        write!(f, "{year:04}-{month:02}-{day:02}T")?;
        write!(
            f,
            "{:02}:{:02}:{:02}",
            second / 3_600,
            second / 60 % 60,
            second % 60
        )?;
        match micros {
            0 => {}
            _ if micros % 1_000 == 0 => write!(f, ".{:03}", micros / 1_000)?,
            _ => write!(f, ".{micros:06}")?,
        }
        f.write_str("Z")
    }
}

/// Same as the display.
impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number of an epoch: a section of the stream, ended by a barrier on every edge.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Returns the next epoch.
    pub const fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// The number of a micro-batch: the records of a few milliseconds, ended by a marker on every edge.
/// The numbers of an attempt start at zero, and may have gaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MicroBatch(pub u64);

impl MicroBatch {
    /// Returns the next micro-batch.
    pub const fn next(self) -> MicroBatch {
        MicroBatch(self.0.saturating_add(1))
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
    fn it_prints_as_rfc_3339() {
        let text = |micros| Timestamp::from_micros(micros).to_string();
        assert_eq!(text(0), "1970-01-01T00:00:00Z");
        assert_eq!(text(1_357_034_400_000_000), "2013-01-01T10:00:00Z");
        assert_eq!(text(951_782_399_999_000), "2000-02-28T23:59:59.999Z");
        assert_eq!(text(951_868_799_000_001), "2000-02-29T23:59:59.000001Z");
        assert_eq!(text(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(text(-62_135_596_800_000_000), "0001-01-01T00:00:00Z");
        assert_eq!(Timestamp::MAX.to_string(), "+inf");
    }

    #[test]
    fn a_later_start_gives_no_time_between() {
        assert_eq!(
            Timestamp::from_secs(1).since(Timestamp::from_secs(3)),
            Duration::ZERO
        );
    }
}
