//! What a user's function may return for a record's event time.

use std::convert::Infallible;
use std::fmt::Display;

use ardea_core::Timestamp;

/// What a user's function returns for a record's event time: a [`Timestamp`], or one that may be missing.
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
    /// Why there is no time.
    type Reason: Display;

    /// The event time.
    ///
    /// # Errors
    /// The reason why the record has none.
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
