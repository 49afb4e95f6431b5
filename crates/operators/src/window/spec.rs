//! Window definitions, and the arithmetic of their slices.
//!
//! Time is divided into slices, each as long as the slide. A window is a whole number of
//! consecutive slices and is named by its last one. Slice *s* contains the times from *s × slide +
//! offset* up to, but not including, the start of slice *s* + 1. A record therefore belongs to one
//! slice, independent of the number of windows ("No pane, no gain": Li et al., SIGMOD Record 34(1),
//! 2005).
//!
//! A calendar window is a single slice, one [day, week or month](super::calendar). These slices
//! have unequal lengths but consecutive numbers. Lengths are used only by the arithmetic in this
//! module.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Timestamp, Watermark};

use super::calendar::{Calendar, CalendarUnit};

/// The number of a slice of time, see [`WindowSpec`]. Also names the window that ends with it.
pub type Slice = i64;

/// A number above all slices, for a stream that has ended.
pub(crate) const ALL_SLICES: Slice = Slice::MAX;

/// The windows of records, and their allowed lateness.
///
/// Windows are half-open, `start ≤ time < end`, and aligned to the Unix epoch plus the offset,
/// before 1970 as well.
///
/// A window is closed, and its results are emitted, when the watermark reaches its end. With an
/// allowed lateness, its state is retained for that much longer: a record for a closed window then
/// leads to a corrected result ([`Firing::Update`](crate::Firing::Update)). A record is **late**
/// when the allowed lateness of all windows that contain it has passed: when the end of the last
/// such window plus the allowed lateness is at most the watermark. A record that is too late only
/// for some of its windows counts for the others.
///
/// A window that would end after the end of time ends at the end of time. Overlapping windows with
/// a slide of one microsecond would exceed the range of slice numbers there: a record for which a
/// window would end after the end of time is an error, as is a record at the end of time.
///
/// ```
/// use std::time::Duration;
/// use ardea_operators::WindowSpec;
///
/// let hourly = WindowSpec::tumbling(Duration::from_secs(3600))?;
/// let last_ten = WindowSpec::sliding(Duration::from_secs(10), Duration::from_millis(500))?;
/// assert_eq!((hourly.slices_per_window(), last_ten.slices_per_window()), (1, 20));
/// assert!(WindowSpec::sliding(Duration::from_secs(10), Duration::from_secs(3)).is_err());
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowSpec {
    slicing: Slicing,
    /// The slices of a window, at least 1.
    slices: i64,
    lateness: Duration,
}

/// The division of time into slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slicing {
    /// Slices of equal length.
    Even {
        /// The length of a slice in microseconds, at least 1.
        slide: i64,
        /// The offset of slice starts in microseconds, less than `slide`.
        offset: i64,
    },
    /// The days, weeks or months of a time zone.
    Calendar(Calendar),
}

impl WindowSpec {
    /// Creates windows of `length`, one starting every `slide`.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if either is zero or not in whole microseconds, or `length` is not
    /// a multiple of `slide`.
    pub fn sliding(length: Duration, slide: Duration) -> Result<Self> {
        let length_us = whole_micros("length", length)?;
        let slide_us = whole_micros("slide", slide)?;
        if length_us % slide_us != 0 {
            let what = format!(
                "a window's length must be a multiple of its slide, but {length:?} is not one of {slide:?}"
            );
            let fits =
                Duration::from_micros((length_us - length_us % slide_us).max(slide_us) as u64);
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint(format!("a length of {fits:?} would do")));
        }
        Ok(WindowSpec {
            slicing: Slicing::Even {
                slide: slide_us,
                offset: 0,
            },
            slices: length_us / slide_us,
            lateness: Duration::ZERO,
        })
    }

    /// Creates consecutive days, weeks or months of a time zone of the IANA database, such as
    /// `Europe/Berlin`.
    ///
    /// A window begins at the first instant at which the local clock shows its first day. A day
    /// therefore has 23 or 25 hours when the clock changes, and a day whose midnight does not exist
    /// begins at the change.
    ///
    /// ```
    /// use ardea_operators::{CalendarUnit, Weekday, WindowSpec};
    ///
    /// let weekly = WindowSpec::calendar(CalendarUnit::Week(Weekday::Sunday), "America/New_York")?;
    /// assert!(WindowSpec::calendar(CalendarUnit::Day, "Europe/Berlni").is_err());
    /// # Ok::<(), ardea_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if there is no such time zone.
    pub fn calendar(unit: CalendarUnit, zone: &str) -> Result<Self> {
        Ok(WindowSpec {
            slicing: Slicing::Calendar(Calendar::new(unit, zone)?),
            slices: 1,
            lateness: Duration::ZERO,
        })
    }

    /// Creates consecutive windows of `length`.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if `length` is zero or not in whole microseconds.
    pub fn tumbling(length: Duration) -> Result<Self> {
        WindowSpec::sliding(length, length)
    }

    /// Moves all windows by `offset`: days that start at 06:00 UTC have an offset of six hours.
    ///
    /// Only the remainder by the slide matters; fractions of a microsecond are dropped. Calendar
    /// windows are moved by the local clock, and the remainder is by the shortest day, week or
    /// month (28 days).
    pub fn offset(mut self, offset: Duration) -> Self {
        let micros = offset.as_micros();
        self.slicing = match self.slicing {
            Slicing::Even { slide, .. } => Slicing::Even {
                slide,
                offset: (micros % slide as u128) as i64,
            },
            Slicing::Calendar(calendar) => Slicing::Calendar(calendar.later_by(micros)),
        };
        self
    }

    /// Accepts records for closed windows up to `lateness` after their end, and emits corrected
    /// results.
    pub fn allowed_lateness(mut self, lateness: Duration) -> Self {
        self.lateness = lateness;
        self
    }

    /// Returns the number of slices per window: the length divided by the slide.
    pub const fn slices_per_window(&self) -> i64 {
        self.slices
    }

    /// Returns the name of the state of slices. It contains the slide, as slice numbers with
    /// another slide mean other times.
    pub(crate) fn name_of_slices(&self) -> String {
        match self.slicing {
            Slicing::Even { slide, offset: 0 } => format!("slices of {slide} us"),
            Slicing::Even { slide, offset } => format!("slices of {slide} us from {offset}"),
            Slicing::Calendar(calendar) => format!("slices of {calendar}"),
        }
    }

    /// Returns true if windows do not overlap.
    pub(crate) const fn is_tumbling(&self) -> bool {
        self.slices == 1
    }

    /// Returns true if closed windows may still be corrected.
    pub(crate) const fn allows_lateness(&self) -> bool {
        !self.lateness.is_zero()
    }

    /// Returns the latest time for which all windows that contain it have a number.
    pub fn latest(&self) -> Timestamp {
        match self.slicing {
            Slicing::Even { slide: 1, .. } => {
                Timestamp::from_micros(Timestamp::MAX.as_micros() - self.slices)
            }
            // There are half as many slices as numbers, so the windows of the last slice have
            // numbers.
            _ => Timestamp::LAST_EVENT,
        }
    }

    /// Returns the slice of `time`. The last slice but one also contains all later times, so that
    /// every slice has a successor.
    #[inline]
    pub fn slice_of(&self, time: Timestamp) -> Slice {
        let micros = time.as_micros();
        match self.slicing {
            Slicing::Even { slide, offset } => {
                let slice = micros.div_euclid(slide);
                // The offset is less than the slide, so it can only lead to the previous slice. A
                // nonzero offset needs a slide of at least 2, whose quotients are far from the
                // minimum.
                let slice = slice - i64::from(micros.rem_euclid(slide) < offset);
                slice.min(ALL_SLICES - 1)
            }
            Slicing::Calendar(calendar) => calendar.slice_of(micros),
        }
    }

    /// Returns the first time in `slice`, clamped to the range of timestamps.
    pub(crate) fn start_of(&self, slice: Slice) -> Timestamp {
        let micros = match self.slicing {
            Slicing::Even { slide, offset } => {
                let micros = i128::from(slice) * i128::from(slide) + i128::from(offset);
                micros.clamp(i64::MIN.into(), i64::MAX.into()) as i64
            }
            Slicing::Calendar(calendar) => calendar.start_of(slice),
        };
        Timestamp::from_micros(micros)
    }

    /// Returns the end of `slice`: the first time after it, clamped to the range of timestamps.
    pub(crate) fn end_of(&self, slice: Slice) -> Timestamp {
        if slice >= ALL_SLICES - 1 {
            Timestamp::MAX
        } else {
            self.start_of(slice + 1)
        }
    }

    /// Returns the first event time in `slice`, never the start of time, which marks records
    /// without a time.
    pub fn first_of(&self, slice: Slice) -> Timestamp {
        self.start_of(slice).max(Timestamp::FIRST_EVENT)
    }

    /// Returns the last event time in `slice`, never the end of time, which is no event time.
    pub fn last_of(&self, slice: Slice) -> Timestamp {
        if slice >= ALL_SLICES - 1 {
            return Timestamp::LAST_EVENT;
        }
        let last = match self.slicing {
            Slicing::Even { slide, offset } => {
                i128::from(slice) * i128::from(slide) + i128::from(offset) + i128::from(slide) - 1
            }
            // Clamped to the end of time, which is not in the slice either.
            Slicing::Calendar(calendar) => i128::from(calendar.start_of(slice + 1)) - 1,
        };
        let latest = Timestamp::LAST_EVENT.as_micros();
        Timestamp::from_micros(last.clamp(i64::MIN.into(), latest.into()) as i64)
    }

    /// Returns the first slice of `window`.
    pub(crate) fn first_slice_of(&self, window: Slice) -> Slice {
        window.saturating_sub(self.slices - 1)
    }

    /// Returns the last window that contains `slice`.
    pub(crate) fn last_window_of(&self, slice: Slice) -> Slice {
        slice.saturating_add(self.slices - 1).min(ALL_SLICES - 1)
    }

    /// Returns the first window that is not closed at `watermark`.
    pub fn first_open(&self, watermark: Watermark) -> Slice {
        if watermark == Watermark::END {
            ALL_SLICES
        } else {
            self.slice_of(watermark.0)
        }
    }

    /// Returns the first window that may still change at `watermark`, closed or not.
    pub(crate) fn first_kept(&self, watermark: Watermark) -> Slice {
        if watermark == Watermark::END {
            ALL_SLICES
        } else {
            self.slice_of(watermark.0 - self.lateness)
        }
    }

    /// Returns the time before which a record that is not late is missing in some of its windows at
    /// `watermark`, as these windows do not change any more.
    pub(crate) fn late_in_part_before(&self, watermark: Watermark) -> Timestamp {
        match watermark {
            Watermark::NONE => Timestamp::MIN,
            // A record in a single window is either late or not.
            _ if self.slices == 1 => Timestamp::MIN,
            Watermark::END => Timestamp::MAX,
            _ => self.start_of(self.first_kept(watermark)),
        }
    }

    /// Returns the time before which records are late at `watermark`.
    pub fn late_before(&self, watermark: Watermark) -> Timestamp {
        match watermark {
            Watermark::NONE => Timestamp::MIN,
            Watermark::END => Timestamp::MAX,
            _ => self.start_of(self.first_slice_of(self.first_kept(watermark))),
        }
    }
}

fn whole_micros(name: &str, duration: Duration) -> Result<i64> {
    let micros = i64::try_from(duration.as_micros())
        .ok()
        .filter(|micros| *micros > 0);
    micros
        .filter(|_| duration.subsec_nanos().is_multiple_of(1_000))
        .ok_or_else(|| {
            let what = format!(
                "a window's {name} must be whole microseconds, at least one, but is {duration:?}"
            );
            Error::new(ErrorCode::InvalidJob, what).hint("give a duration such as 10 s or 500 ms")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Weekday;
    use proptest::prelude::*;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn lengths_and_slides_that_make_no_sense_are_refused_with_their_numbers() {
        let message = |length, slide| WindowSpec::sliding(length, slide).unwrap_err().to_string();
        let text = message(Duration::from_secs(10), Duration::from_secs(3));
        assert!(
            text.contains("ARD-101")
                && text.contains("10s")
                && text.contains("3s")
                && text.contains("9s"),
            "{text}"
        );
        assert!(message(Duration::ZERO, Duration::from_secs(3)).contains("0ns"));
        assert!(message(Duration::from_secs(3), Duration::ZERO).contains("slide"));
        assert!(message(Duration::MAX, Duration::from_secs(1)).contains("length"));
        assert!(WindowSpec::tumbling(Duration::from_nanos(1_500)).is_err());
    }

    #[test]
    fn windows_are_aligned_to_the_epoch_before_and_after_it() {
        let spec = WindowSpec::tumbling(micros(10)).unwrap();
        let slice = |t| spec.slice_of(Timestamp::from_micros(t));
        assert_eq!(
            (
                slice(0),
                slice(9),
                slice(10),
                slice(-1),
                slice(-10),
                slice(-11)
            ),
            (0, 0, 1, -1, -1, -2)
        );
        let moved = spec.offset(micros(23));
        assert_eq!(moved.start_of(0), Timestamp::from_micros(3));
        assert_eq!(moved.slice_of(Timestamp::from_micros(2)), -1);
    }

    #[test]
    fn every_window_of_every_time_that_is_taken_has_a_number() {
        let most = i64::MAX as u64;
        for (length, slide) in [
            (4, 1),
            (1, 1),
            (most, 1),
            (8, 2),
            (most - 1, 2),
            (most, most),
        ] {
            let spec = WindowSpec::sliding(micros(length), micros(slide)).unwrap();
            let slice = spec.slice_of(spec.latest());
            let windows = spec.last_window_of(slice) - slice + 1;
            assert_eq!(windows, spec.slices_per_window(), "{length}/{slide}");
        }
    }

    #[test]
    fn a_record_at_the_watermark_is_on_time() {
        let spec = WindowSpec::sliding(micros(20), micros(10)).unwrap();
        let mark = Watermark(Timestamp::from_micros(30));
        assert_eq!(
            spec.first_open(mark),
            3,
            "windows up to [10, 30) are closed"
        );
        assert_eq!(spec.late_before(mark), Timestamp::from_micros(20));
        let patient = spec.allowed_lateness(micros(10));
        assert_eq!(patient.late_before(mark), Timestamp::from_micros(10));
    }

    fn specs() -> impl Strategy<Value = WindowSpec> {
        let even = prop_oneof![
            1u64..100,
            1_000_000u64..1_000_000_000,
            Just(i64::MAX as u64)
        ];
        let units = prop::sample::select(vec![
            CalendarUnit::Day,
            CalendarUnit::Week(Weekday::Tuesday),
            CalendarUnit::Month,
        ]);
        prop_oneof![
            even.prop_map(|slide| WindowSpec::tumbling(micros(slide)).unwrap()),
            units.prop_map(|unit| WindowSpec::calendar(unit, "Europe/London").unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn a_slice_holds_its_own_times_at_any_end_of_time(
            time in prop_oneof![
                i64::MIN + 1..i64::MAX, i64::MIN + 1..i64::MIN + 100, i64::MAX - 100..i64::MAX, -2_000_000_000_000_000i64..4_000_000_000_000_000,
            ],
            spec in specs(),
            offset in any::<u32>(),
        ) {
            let spec = spec.offset(micros(offset.into()));
            let time = Timestamp::from_micros(time);
            let slice = spec.slice_of(time);
            prop_assert!(spec.start_of(slice) <= spec.first_of(slice));
            prop_assert!(spec.first_of(slice) <= time);
            prop_assert!(time <= spec.last_of(slice));
            prop_assert!(time < spec.end_of(slice));
            let mark = Watermark(time);
            prop_assert!(spec.end_of(spec.first_open(mark)) > time);
            prop_assert!(spec.late_before(mark) <= time);
        }
    }
}
