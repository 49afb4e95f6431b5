//! The kinds of event-time windows.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_operators::{CalendarUnit, SessionSpec, Weekday, WindowSpec, ZoneName};

/// The length of the shortest month.
const SHORTEST_MONTH: Duration = Duration::from_secs(28 * 24 * 60 * 60);

/// The assignment of records to windows. Checked when the pipeline is compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    shape: Shape,
    offset: Duration,
    lateness: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Sliding { length: Duration, slide: Duration },
    Session { gap: Duration },
    Calendar { unit: CalendarUnit, zone: ZoneName },
}

/// The checked window of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Checked {
    Sliding(WindowSpec),
    Session(SessionSpec),
}

impl Window {
    /// Creates consecutive windows of `length`, aligned to the Unix epoch.
    pub const fn tumbling(length: Duration) -> Window {
        Window::sliding(length, length)
    }

    /// Creates windows of `length`, one starting every `slide`, aligned to the Unix epoch. The
    /// length must be a multiple of the slide.
    pub const fn sliding(length: Duration, slide: Duration) -> Window {
        Window {
            shape: Shape::Sliding { length, slide },
            offset: Duration::ZERO,
            lateness: Duration::ZERO,
        }
    }

    /// Creates session windows, which last while records of a key arrive, and end when no record
    /// has arrived for `gap` of event time.
    ///
    /// Final results of a key never overlap. A record within a session whose result is final is
    /// late.
    pub const fn session(gap: Duration) -> Window {
        Window {
            shape: Shape::Session { gap },
            offset: Duration::ZERO,
            lateness: Duration::ZERO,
        }
    }

    /// Creates windows of local days of a time zone of the IANA database, such as `Europe/Berlin`.
    /// A day has 23 or 25 hours when the clock changes.
    ///
    /// The database is built into the program. An unknown zone is an error when the pipeline is
    /// compiled.
    pub const fn daily(zone: &str) -> Window {
        Window::calendar(CalendarUnit::Day, zone)
    }

    /// Creates windows of local weeks of a time zone, which begin on this weekday. See
    /// [`daily`](Self::daily).
    pub const fn weekly(zone: &str, first: Weekday) -> Window {
        Window::calendar(CalendarUnit::Week(first), zone)
    }

    /// Creates windows of local months of a time zone. See [`daily`](Self::daily).
    pub const fn monthly(zone: &str) -> Window {
        Window::calendar(CalendarUnit::Month, zone)
    }

    const fn calendar(unit: CalendarUnit, zone: &str) -> Window {
        Window {
            shape: Shape::Calendar {
                unit,
                zone: ZoneName::new(zone),
            },
            offset: Duration::ZERO,
            lateness: Duration::ZERO,
        }
    }

    /// Moves tumbling and sliding windows by `offset`: days that start at 06:00 UTC have an offset
    /// of six hours. Calendar windows are moved by the local clock: days that start at 06:00 in
    /// their time zone.
    pub const fn offset(mut self, offset: Duration) -> Window {
        self.offset = offset;
        self
    }

    /// Accepts records for closed windows up to `lateness` after their end, and emits corrected
    /// results ([`Firing::Update`](ardea_operators::Firing::Update)).
    pub const fn allowed_lateness(mut self, lateness: Duration) -> Window {
        self.lateness = lateness;
        self
    }

    /// Returns the checked windows; `None` for session windows, which have no fixed bounds.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the lengths or the time zone are not valid.
    pub fn spec(self) -> Result<Option<WindowSpec>> {
        Ok(match self.check()? {
            Checked::Sliding(spec) => Some(spec),
            Checked::Session(_) => None,
        })
    }

    /// Returns the checked session windows; `None` for other windows.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the lengths or the time zone are not valid.
    pub fn session_spec(self) -> Result<Option<SessionSpec>> {
        Ok(match self.check()? {
            Checked::Sliding(_) => None,
            Checked::Session(spec) => Some(spec),
        })
    }

    pub(crate) fn check(self) -> Result<Checked> {
        Ok(match self.shape {
            Shape::Sliding { length, slide } => Checked::Sliding(
                WindowSpec::sliding(length, slide)?
                    .offset(self.offset)
                    .allowed_lateness(self.lateness),
            ),
            Shape::Session { gap } => {
                Checked::Session(SessionSpec::gap(gap)?.allowed_lateness(self.lateness))
            }
            Shape::Calendar { unit, zone } => {
                if unit == CalendarUnit::Month && self.offset >= SHORTEST_MONTH {
                    let what = format!(
                        "months can't begin {:?} later, as the shortest one has 28 days",
                        self.offset
                    );
                    return Err(Error::new(ErrorCode::InvalidJob, what)
                        .hint("give an offset of less than 28 days"));
                }
                Checked::Sliding(
                    WindowSpec::calendar(unit, zone.as_str())?
                        .offset(self.offset)
                        .allowed_lateness(self.lateness),
                )
            }
        })
    }

    /// Returns the reason why partial results of several first stages cannot be combined; `None` if
    /// they can.
    pub(crate) fn obstacle_to_two_stages(self) -> Option<&'static str> {
        match (self.is_session(), self.lateness.is_zero()) {
            (true, _) => Some("sessions need the records of a key in one place"),
            (false, false) => {
                Some("windows with allowed lateness need the records of a key in one place")
            }
            (false, true) => None,
        }
    }

    /// Returns true for session windows, which are separate for each key.
    pub(crate) fn is_session(self) -> bool {
        matches!(self.shape, Shape::Session { .. })
    }
}
