//! Days, weeks and months of a time zone as slices.
//!
//! A slice is a calendar unit. Slices are numbered from 1970 by the local calendar. The number of a
//! slice is therefore the same in every version of the time zone database, although its start and
//! end may differ. Local time is continuous, and all date arithmetic uses it. A [`Zone`] maps local
//! times to instants.

use std::fmt;

use ardea_core::Result;

use super::spec::Slice;
use super::time_zone::Zone;

const DAY: i64 = 86_400 * 1_000_000;

/// An upper bound of the number of days between 1970 and the first or last timestamp.
const ALL_DAYS: i64 = 200_000_000;

/// A day of the week.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the names of weekdays need no explanation")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// A unit of the local calendar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CalendarUnit {
    /// A day from midnight to midnight.
    Day,
    /// Seven days that begin with this weekday.
    Week(Weekday),
    /// A month, from its first day to that of the next month.
    Month,
}

/// The calendar of a time zone in units of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Calendar {
    zone: &'static Zone,
    unit: CalendarUnit,
    /// The offset of the starts of units, in microseconds of local time.
    offset: i64,
}

impl CalendarUnit {
    /// Returns the number of the unit that contains the day with number `day` since 1970.
    fn of_day(self, day: i64) -> i64 {
        match self {
            CalendarUnit::Day => day,
            CalendarUnit::Week(first) => (day - first_in_week(first)).div_euclid(7),
            CalendarUnit::Month => month_of(day),
        }
    }

    /// Returns the number of the first day of a unit.
    fn first_day(self, number: i64) -> i64 {
        match self {
            CalendarUnit::Day => number,
            CalendarUnit::Week(first) => number
                .saturating_mul(7)
                .saturating_add(first_in_week(first)),
            CalendarUnit::Month => first_of_month(number),
        }
    }

    /// Returns the length of the shortest unit of this kind, in microseconds.
    fn least(self) -> i64 {
        match self {
            CalendarUnit::Day => DAY,
            CalendarUnit::Week(_) => 7 * DAY,
            CalendarUnit::Month => 28 * DAY,
        }
    }
}

impl Calendar {
    /// Creates the calendar of the zone with this name.
    ///
    /// # Errors
    /// There is no such zone.
    pub(crate) fn new(unit: CalendarUnit, zone: &str) -> Result<Self> {
        Ok(Calendar {
            zone: Zone::named(zone)?,
            unit,
            offset: 0,
        })
    }

    /// Moves all units by `micros` of local time, modulo the shortest unit.
    pub(crate) fn later_by(self, micros: u128) -> Self {
        let offset = (micros % self.unit.least() as u128) as i64;
        Calendar { offset, ..self }
    }

    /// Returns the slice of an instant.
    pub(crate) fn slice_of(&self, instant: i64) -> Slice {
        let local = self.zone.local(instant).saturating_sub(self.offset);
        let mut slice = self.unit.of_day(local.div_euclid(DAY));
        // The local clock may have been set back over the start of the next slice.
        while instant < i64::MAX && self.start_of(slice + 1) <= instant {
            slice += 1;
        }
        // At the start of time, local times saturate.
        while self.start_of(slice) > instant {
            slice -= 1;
        }
        slice
    }

    /// Returns the instant at which a slice starts, clamped to the range of timestamps.
    pub(crate) fn start_of(&self, slice: Slice) -> i64 {
        let day = self.unit.first_day(slice.clamp(-ALL_DAYS, ALL_DAYS));
        let local = i128::from(day) * i128::from(DAY) + i128::from(self.offset);
        match i64::try_from(local) {
            Ok(local) => self.zone.first_at(local),
            Err(_) if local < 0 => i64::MIN,
            Err(_) => i64::MAX,
        }
    }
}

/// A part of the name of a state.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            CalendarUnit::Day => f.write_str("days")?,
            CalendarUnit::Week(first) => write!(f, "weeks from {first:?}")?,
            CalendarUnit::Month => f.write_str("months")?,
        }
        write!(f, " in {}", self.zone.name())?;
        match self.offset {
            0 => Ok(()),
            offset => write!(f, " from {offset} us"),
        }
    }
}

/// Returns the number of the first such weekday since 1 January 1970, a Thursday.
fn first_in_week(day: Weekday) -> i64 {
    (day as i64 - Weekday::Thursday as i64).rem_euclid(7)
}

/// The day on which years from March to February begin, in the year 0 of the Gregorian calendar.
const MARCH_OF_YEAR_0: i64 = -719_468;

/// Returns the number since 1970 of the month that contains a day.
///
/// After Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn month_of(day: i64) -> i64 {
    let day = day - MARCH_OF_YEAR_0;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    (year + era * 400) * 12 + month + 2 - 1970 * 12
}

/// Returns the number of the first day of `month`. Days and months are numbered since 1970.
fn first_of_month(month: i64) -> i64 {
    let from_march = month.saturating_add(1970 * 12 - 2);
    let (year, month) = (from_march.div_euclid(12), from_march.rem_euclid(12));
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year + MARCH_OF_YEAR_0
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::Date;
    use jiff::tz::TimeZone;
    use jiff::{ToSpan, Zoned};
    use proptest::prelude::*;

    const HOUR: i64 = DAY / 24;

    fn calendar(unit: CalendarUnit, zone: &str) -> Calendar {
        Calendar::new(unit, zone).unwrap()
    }

    /// Parses an instant such as `2024-03-31T01:30+01:00`.
    fn instant(text: &str) -> i64 {
        text.parse::<jiff::Timestamp>().unwrap().as_microsecond()
    }

    /// Returns the start, and the length in hours, of the slice that contains an instant.
    fn slice(calendar: &Calendar, text: &str) -> (i64, f64) {
        let slice = calendar.slice_of(instant(text));
        let (start, end) = (calendar.start_of(slice), calendar.start_of(slice + 1));
        (start, (end - start) as f64 / HOUR as f64)
    }

    #[test]
    fn days_have_23_or_25_hours_when_the_clock_is_set() {
        let berlin = calendar(CalendarUnit::Day, "Europe/Berlin");
        let spring = (instant("2024-03-31T00:00+01:00"), 23.0);
        assert_eq!(slice(&berlin, "2024-03-31T00:00+01:00"), spring);
        assert_eq!(slice(&berlin, "2024-03-31T23:59:59.999999+02:00"), spring);
        let autumn = (instant("2024-10-27T00:00+02:00"), 25.0);
        assert_eq!(slice(&berlin, "2024-10-27T02:30+02:00"), autumn);
        assert_eq!(slice(&berlin, "2024-10-27T02:30+01:00"), autumn);
        let half = calendar(CalendarUnit::Day, "Australia/Lord_Howe");
        assert_eq!(slice(&half, "2024-04-07T12:00+10:30").1, 24.5);
        assert_eq!(slice(&half, "2024-10-06T12:00+11:00").1, 23.5);
    }

    /// A zone with an offset that is not a whole number of hours, and without daylight saving time.
    #[test]
    fn days_of_a_zone_with_a_half_hour_offset_begin_at_its_midnight() {
        let kolkata = calendar(CalendarUnit::Day, "Asia/Kolkata");
        let start = instant("2024-03-31T00:00+05:30");
        assert_eq!(slice(&kolkata, "2024-03-30T18:30Z"), (start, 24.0));
        assert_eq!(
            slice(&kolkata, "2024-03-31T18:29:59.999999Z"),
            (start, 24.0)
        );
    }

    #[test]
    fn a_day_whose_midnight_does_not_exist_begins_when_the_clock_is_set() {
        let sao_paulo = calendar(CalendarUnit::Day, "America/Sao_Paulo");
        let start = instant("2018-11-04T01:00-02:00");
        assert_eq!(slice(&sao_paulo, "2018-11-04T12:00-02:00"), (start, 23.0));
        assert_eq!(
            slice(&sao_paulo, "2018-11-03T23:59:59.999999-03:00").1,
            24.0
        );
        let beirut = calendar(CalendarUnit::Day, "Asia/Beirut");
        let start = instant("2024-03-31T01:00+03:00");
        assert_eq!(slice(&beirut, "2024-03-31T12:00+03:00"), (start, 23.0));
        // A week and a month across such a midnight, and a week that begins with it.
        let month = calendar(CalendarUnit::Month, "Asia/Beirut");
        let hours = 31.0 * 24.0 - 1.0;
        assert_eq!(slice(&month, "2024-03-31T12:00+03:00").1, hours);
        let week = |first| calendar(CalendarUnit::Week(first), "America/Sao_Paulo");
        let (monday, sunday) = (week(Weekday::Monday), week(Weekday::Sunday));
        let noon = "2017-10-15T12:00-02:00";
        assert_eq!(
            slice(&monday, noon),
            (instant("2017-10-09T00:00-03:00"), 167.0)
        );
        assert_eq!(
            slice(&sunday, noon),
            (instant("2017-10-15T01:00-02:00"), 167.0)
        );
        // From 23:30 to 00:30 the next day.
        let toronto = calendar(CalendarUnit::Day, "America/Toronto");
        let start = instant("1919-03-31T00:30-04:00");
        assert_eq!(slice(&toronto, "1919-03-31T12:00-04:00"), (start, 23.5));
        assert_eq!(slice(&toronto, "1919-03-30T12:00-05:00").1, 23.5);
    }

    #[test]
    fn a_day_whose_midnight_comes_twice_begins_with_the_first() {
        let havana = calendar(CalendarUnit::Day, "America/Havana");
        let start = instant("2024-11-03T00:00-04:00");
        assert_eq!(slice(&havana, "2024-11-03T00:30-05:00"), (start, 25.0));
        // Set back from 00:01 to 23:01: the time until midnight belongs to the new day.
        let st_johns = calendar(CalendarUnit::Day, "America/St_Johns");
        let start = instant("2009-11-01T00:00-02:30");
        assert_eq!(slice(&st_johns, "2009-10-31T23:30-03:30"), (start, 25.0));
    }

    #[test]
    fn a_day_that_a_zone_left_out_is_no_slice_of_any_instant() {
        let apia = calendar(CalendarUnit::Day, "Pacific/Apia");
        let before = apia.slice_of(instant("2011-12-29T23:59:59.999999-10:00"));
        let after = apia.slice_of(instant("2011-12-31T00:00+14:00"));
        assert_eq!(after - before, 2);
        assert_eq!(apia.start_of(before + 1), apia.start_of(after));
    }

    #[test]
    fn weeks_begin_with_the_chosen_day_and_months_with_their_first() {
        let start = |unit, text: &str| slice(&calendar(unit, "America/New_York"), text);
        let week = |first| start(CalendarUnit::Week(first), "2024-03-13T12:00-04:00");
        assert_eq!(
            week(Weekday::Monday),
            (instant("2024-03-11T00:00-04:00"), 168.0)
        );
        assert_eq!(
            week(Weekday::Sunday),
            (instant("2024-03-10T00:00-05:00"), 167.0)
        );
        assert_eq!(
            week(Weekday::Wednesday).0,
            instant("2024-03-13T00:00-04:00")
        );
        let month = start(CalendarUnit::Month, "2024-02-29T23:59:59-05:00");
        assert_eq!(month, (instant("2024-02-01T00:00-05:00"), 29.0 * 24.0));
    }

    #[test]
    fn units_that_begin_later_do_so_by_the_local_clock() {
        let six = calendar(CalendarUnit::Day, "Europe/Berlin").later_by(6 * HOUR as u128);
        let start = instant("2024-03-30T06:00+01:00");
        assert_eq!(slice(&six, "2024-03-31T05:59+02:00"), (start, 23.0));
        let fifth = calendar(CalendarUnit::Month, "UTC").later_by(4 * DAY as u128);
        assert_eq!(
            slice(&fifth, "2024-03-04T23:00Z").0,
            instant("2024-02-05T00:00Z")
        );
    }

    #[test]
    fn names_tell_calendars_apart() {
        let name = |unit, zone, offset| calendar(unit, zone).later_by(offset).to_string();
        assert_eq!(name(CalendarUnit::Day, "UTC", 0), "days in UTC");
        assert_eq!(
            name(CalendarUnit::Month, "Asia/Tokyo", 5),
            "months in Asia/Tokyo from 5 us"
        );
        let week = CalendarUnit::Week(Weekday::Sunday);
        assert_eq!(name(week, "UTC", 0), "weeks from Sunday in UTC");
    }

    /// Returns the first day of the unit that contains a date, computed by the date library.
    fn first_date(unit: CalendarUnit, date: Date) -> Date {
        match unit {
            CalendarUnit::Day => date,
            CalendarUnit::Week(first) => {
                let back = (date.weekday().to_monday_zero_offset() - first as i8).rem_euclid(7);
                date.checked_sub(i32::from(back).days()).unwrap()
            }
            CalendarUnit::Month => date.first_of_month(),
        }
    }

    fn units() -> impl Strategy<Value = CalendarUnit> {
        prop_oneof![
            Just(CalendarUnit::Day),
            Just(CalendarUnit::Month),
            Just(CalendarUnit::Week(Weekday::Monday)),
            Just(CalendarUnit::Week(Weekday::Saturday)),
        ]
    }

    proptest! {
        #[test]
        fn slices_are_the_units_of_the_local_calendar_in_any_zone(
            zone in prop::sample::select(vec![
                "Europe/Berlin", "America/Sao_Paulo", "America/St_Johns", "America/Havana", "Asia/Tehran",
                "Pacific/Apia", "Asia/Gaza", "Africa/Cairo", "Australia/Lord_Howe", "Antarctica/Troll", "UTC",
                "Asia/Kolkata", "Asia/Beirut",
            ]),
            unit in units(),
            second in -4_000_000_000i64..16_000_000_000,
            near in any::<bool>(),
        ) {
            let theirs = jiff::tz::TimeZoneDatabase::bundled().get(zone).unwrap();
            let at = jiff::Timestamp::from_second(second).unwrap();
            // Half of the instants are close to a transition.
            let at = match theirs.following(at).next() {
                Some(next) if near => next.timestamp() + (second % 90_000).seconds(),
                _ => at,
            };
            let calendar = calendar(unit, zone);
            let slice = calendar.slice_of(at.as_microsecond());
            let (start, end) = (calendar.start_of(slice), calendar.start_of(slice + 1));
            prop_assert!(start <= at.as_microsecond() && at.as_microsecond() < end);
            let local = |micros: i64, zone: &TimeZone| -> Zoned {
                jiff::Timestamp::from_microsecond(micros).unwrap().to_zoned(zone.clone())
            };
            let first = local(start, &theirs).date();
            prop_assert!(first_date(unit, first) == first, "{first} is the first of a unit");
            let before = local(start - 1, &theirs).datetime();
            prop_assert!(before < first.to_datetime(jiff::civil::Time::midnight()), "{before} is before {first}");
        }

        #[test]
        fn months_are_those_of_the_library_for_dates(day in -4_000_000i64..2_900_000) {
            let date = Date::constant(1970, 1, 1).checked_add(day.days());
            let Ok(date) = date else { return Ok(()) };
            let month = month_of(day);
            prop_assert_eq!(month, (i64::from(date.year()) - 1970) * 12 + i64::from(date.month()) - 1);
            prop_assert_eq!(first_of_month(month), day - i64::from(date.day()) + 1);
        }

        #[test]
        fn slices_hold_their_own_times_at_any_end_of_time(
            micros in prop_oneof![any::<i64>(), i64::MIN..i64::MIN + 1_000, i64::MAX - 1_000..i64::MAX],
            unit in units(),
            offset in 0u64..30 * DAY as u64,
        ) {
            let calendar = calendar(unit, "America/New_York").later_by(offset.into());
            let slice = calendar.slice_of(micros);
            prop_assert!(calendar.start_of(slice) <= micros);
            prop_assert!(micros < calendar.start_of(slice + 1) || calendar.start_of(slice + 1) == i64::MAX);
        }
    }
}
