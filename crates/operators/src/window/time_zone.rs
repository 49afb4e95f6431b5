//! Time zones as transitions between their offsets from UTC.

use std::fmt;
use std::sync::Mutex;

use ardea_config::nearest;
use ardea_core::{Error, ErrorCode, Result};
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};

/// An upper bound of the distance of any zone from UTC, in microseconds.
const MAX_OFFSET: i64 = 26 * 3_600 * 1_000_000;

/// The zones in use, each once per process. A window specification refers to its zone and is a
/// plain value.
static ZONES: Mutex<Vec<&'static Zone>> = Mutex::new(Vec::new());

/// A time zone of the IANA database that is built into the program.
///
/// The database of the host is not used: all processes of a job must agree on the start of a day.
#[derive(PartialEq, Eq)]
pub(crate) struct Zone {
    /// The name as spelled in the database.
    name: String,
    /// Transitions in order of time up to the year 9999. The first one is at the start of time.
    transitions: Vec<Transition>,
}

/// The instant at which an offset from UTC takes effect, both in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Transition {
    at: i64,
    offset: i64,
}

impl Zone {
    /// Returns the zone with this name of the IANA database, ignoring case.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if there is no such zone.
    pub(crate) fn named(name: &str) -> Result<&'static Zone> {
        let database = TimeZoneDatabase::bundled();
        let found = database.get(name).ok();
        let found = found
            .as_ref()
            .and_then(|zone| Some((zone, zone.iana_name()?)));
        let Some((zone, name)) = found else {
            return Err(unknown(name, &database));
        };
        let mut zones = ZONES
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(known) = zones.iter().find(|known| known.name == name) {
            return Ok(known);
        }
        let zone = Box::leak(Box::new(Zone {
            name: name.to_string(),
            transitions: transitions(zone),
        }));
        zones.push(zone);
        Ok(zone)
    }

    /// Returns the name of the zone.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the local time at `instant`, in microseconds since 1970 by the local clock.
    pub(crate) fn local(&self, instant: i64) -> i64 {
        let after = self.transitions.partition_point(|it| it.at <= instant);
        instant.saturating_add(self.transitions[after.saturating_sub(1)].offset)
    }

    /// Returns the first instant at which the local clock shows `local` or more.
    ///
    /// If the clock skips `local`, returns the instant of the skip. If the clock shows `local`
    /// twice, returns the first instant.
    pub(crate) fn first_at(&self, local: i64) -> i64 {
        let transitions = &self.transitions;
        let surely_before = local.saturating_sub(MAX_OFFSET);
        let after = transitions.partition_point(|it| it.at <= surely_before);
        let mut at = after.saturating_sub(1);
        while let Some(next) = transitions.get(at + 1)
            && next.at.saturating_add(transitions[at].offset) <= local
        {
            at += 1;
        }
        let Transition { at, offset } = transitions[at];
        local.saturating_sub(offset).max(at)
    }
}

/// Returns the transitions of a zone, at most two per year.
fn transitions(zone: &TimeZone) -> Vec<Transition> {
    let micros = |offset: Offset| i64::from(offset.seconds()) * 1_000_000;
    let first = jiff::Timestamp::MIN;
    let mut all = vec![Transition {
        at: i64::MIN,
        offset: micros(zone.to_offset(first)),
    }];
    for transition in zone.following(first) {
        let offset = micros(transition.offset());
        // Other transitions only change the zone's abbreviation.
        if all.last().is_some_and(|last| last.offset != offset) {
            let at = transition.timestamp().as_microsecond();
            all.push(Transition { at, offset });
        }
    }
    all
}

fn unknown(name: &str, database: &TimeZoneDatabase) -> Error {
    let what = format!("there is no time zone {name:?} in the IANA database");
    let names: Vec<_> = database.available().map(|it| it.to_string()).collect();
    let hint = match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near:?}?"),
        None => "give the name of a region's zone, such as \"Europe/Berlin\", or \"UTC\"".into(),
    };
    Error::new(ErrorCode::InvalidJob, what).hint(hint)
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The name of a time zone, stored inline so that its owner is a plain value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ZoneName {
    bytes: [u8; ZoneName::LONGEST],
    length: u8,
}

impl ZoneName {
    /// The maximum length in bytes. The longest name of the database has 32.
    const LONGEST: usize = 47;

    /// Creates a name, truncated to the maximum length.
    pub const fn new(name: &str) -> ZoneName {
        let mut length = 0;
        let mut bytes = [0; ZoneName::LONGEST];
        while length < name.len() && length < ZoneName::LONGEST {
            bytes[length] = name.as_bytes()[length];
            length += 1;
        }
        ZoneName {
            bytes,
            length: length as u8,
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        let bytes = &self.bytes[..usize::from(self.length)];
        match std::str::from_utf8(bytes) {
            Ok(name) => name,
            // Truncated within a character.
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}

impl fmt::Debug for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_zone_is_refused_with_the_name_that_was_probably_meant() {
        let error = Zone::named("Europe/Berlni").unwrap_err().to_string();
        assert!(
            error.contains("\"Europe/Berlni\"") && error.contains("\"Europe/Berlin\""),
            "{error}"
        );
        for name in ["", "Mars", "+02:00", "../etc/passwd", "Europe/Berlin\0"] {
            assert!(Zone::named(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_zone_is_found_whatever_the_case_of_its_letters_and_kept_once() {
        let zone = Zone::named("europe/berlin").unwrap();
        assert_eq!(zone.name(), "Europe/Berlin");
        assert!(std::ptr::eq(zone, Zone::named("Europe/Berlin").unwrap()));
    }

    #[test]
    fn every_zone_of_the_database_has_local_times_as_the_database_says() {
        let database = TimeZoneDatabase::bundled();
        for name in database.available() {
            let (zone, theirs) = (
                Zone::named(name.as_str()),
                database.get(name.as_str()).unwrap(),
            );
            let Ok(zone) = zone else { continue };
            for hour in (-1_200_000i64..2_000_000).step_by(50_021) {
                let at = jiff::Timestamp::from_second(hour * 3_600).unwrap();
                let offset = i64::from(theirs.to_offset(at).seconds()) * 1_000_000;
                let micros = at.as_microsecond();
                assert_eq!(zone.local(micros) - micros, offset, "{name:?} {at}");
            }
        }
    }

    #[test]
    fn a_name_longer_than_any_is_cut_off_and_refused() {
        let name = ZoneName::new(&"ü".repeat(30));
        assert_eq!(name.as_str(), "ü".repeat(23));
        assert!(Zone::named(name.as_str()).is_err());
    }
}
