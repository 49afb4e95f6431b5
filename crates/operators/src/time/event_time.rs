//! Return types of event-time functions, and the check for a valid event time.

use std::convert::Infallible;
use std::fmt::Display;

use ardea_core::{Error, ErrorCode, Ordinal, Result, Timestamp};

/// The return type of a user's event-time function: a [`Timestamp`], or an `Option` or `Result` of
/// one.
///
/// ```
/// use ardea_core::Timestamp;
/// use ardea_operators::EventTime;
///
/// let parsed = "1700000000".parse().map(Timestamp::from_secs);
/// assert_eq!(parsed.event_time(), Ok(Timestamp::from_secs(1_700_000_000)));
/// assert!(None.event_time().is_err());
/// ```
pub trait EventTime {
    /// The reason for a missing event time.
    type Reason: Display;

    /// Returns the event time.
    ///
    /// # Errors
    /// The reason why the record has no event time.
    fn event_time(self) -> Result<Timestamp, Self::Reason>;
}

impl EventTime for Timestamp {
    type Reason = Infallible;

    #[inline]
    fn event_time(self) -> Result<Timestamp, Infallible> {
        Ok(self)
    }
}

impl EventTime for Option<Timestamp> {
    type Reason = &'static str;

    #[inline]
    fn event_time(self) -> Result<Timestamp, &'static str> {
        self.ok_or("it has no event time")
    }
}

impl<E: Display> EventTime for Result<Timestamp, E> {
    type Reason = E;

    #[inline]
    fn event_time(self) -> Result<Timestamp, E> {
        self
    }
}

/// Checks that each record has an event time before the end of time. `position` is that of the
/// first record on the input.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] with the position of the first record without one.
pub fn require_times(times: &[Timestamp], input: Ordinal, position: u64) -> Result<()> {
    let Some(index) = times.iter().position(|time| !time.is_event_time()) else {
        return Ok(());
    };
    let (what, hint) = match times[index] {
        Timestamp::MIN => (
            "a record without event time came to a step that needs one",
            "assign event times before this step: with_timestamps(|record| …)",
        ),
        _ => (
            "a record at the end of all time came to a step that needs its event time",
            "with_timestamps(|record| …) sets such records aside; a source that gives the times itself has to give earlier ones",
        ),
    };
    Err(Error::new(ErrorCode::InvalidJob, what)
        .at_record(input.index(), position + index as u64)
        .hint(hint))
}
