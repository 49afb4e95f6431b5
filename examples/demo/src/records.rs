//! The rows of the flight data, limited to the columns of the demo.

use std::fmt::Display;
use std::str::FromStr;

use ardea::prelude::{Either, Timestamp};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// A flight as scheduled, with its delay.
#[derive(Clone, Deserialize, Debug)]
pub struct Flight {
    /// The airline's code.
    pub carrier: String,
    /// The plane; `None` if no plane was ever assigned.
    #[serde(deserialize_with = "unless_na")]
    pub tailnum: Option<String>,
    /// The airport of departure.
    pub origin: String,
    /// The destination airport.
    pub dest: String,
    /// The scheduled hour.
    #[serde(rename = "time_hour", deserialize_with = "rfc3339")]
    pub hour: Timestamp,
    /// The minute of the scheduled hour.
    pub minute: i64,
    /// Minutes of delay, negative if early; `None` if the flight was cancelled.
    #[serde(deserialize_with = "unless_na")]
    pub dep_delay: Option<i64>,
}

/// An airport and its time zone.
#[derive(Clone, Deserialize, Debug)]
pub struct Airport {
    /// The code of the airport.
    pub faa: String,
    /// The offset from UTC in winter, in hours.
    pub tz: i64,
}

/// A flight that left.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Departure {
    /// The airline's code.
    pub carrier: String,
    /// The plane.
    pub tailnum: Option<String>,
    /// The airport of departure.
    pub origin: String,
    /// The destination airport.
    pub dest: String,
    /// The scheduled hour.
    pub hour: Timestamp,
    /// Minutes of delay, negative if early.
    pub delay: i64,
}

impl Flight {
    /// Returns the scheduled time of departure.
    pub fn scheduled(&self) -> Timestamp {
        Timestamp::from_secs(self.hour.as_millis() / 1000 + self.minute * 60)
    }

    /// Returns the actual time of departure, or the scheduled one if the flight was cancelled: the
    /// event time of the demo.
    pub fn happened(&self) -> Timestamp {
        let delay_millis = self.dep_delay.unwrap_or(0).saturating_mul(60_000);
        Timestamp::from_millis(self.scheduled().as_millis().saturating_add(delay_millis))
    }

    /// Converts to a departure, or to the reason why there was none.
    pub fn departed_or_cancelled(self) -> Either<Departure, &'static str> {
        let Some(delay) = self.dep_delay else {
            return Either::Right(match self.tailnum {
                Some(_) => "cancelled, with a plane assigned",
                None => "cancelled before a plane was assigned",
            });
        };
        let Flight {
            carrier,
            tailnum,
            origin,
            dest,
            hour,
            ..
        } = self;
        Either::Left(Departure {
            carrier,
            tailnum,
            origin,
            dest,
            hour,
            delay,
        })
    }
}

impl Departure {
    /// Returns the airport and the scheduled hour: the key of the weather.
    pub fn place_and_hour(&self) -> (String, i64) {
        (self.origin.clone(), self.hour.as_micros())
    }

    /// Returns the route.
    pub fn route(&self) -> (String, String) {
        (self.origin.clone(), self.dest.clone())
    }
}

/// The weather at an airport during an hour.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Weather {
    /// The airport.
    pub origin: String,
    /// The hour.
    #[serde(rename = "time_hour", deserialize_with = "rfc3339")]
    pub hour: Timestamp,
    /// The wind speed in miles per hour.
    #[serde(deserialize_with = "unless_na")]
    pub wind_speed: Option<f64>,
    /// The rain or snow in inches.
    #[serde(deserialize_with = "unless_na")]
    pub precip: Option<f64>,
    /// The visibility in miles, at most 10.
    #[serde(deserialize_with = "unless_na")]
    pub visib: Option<f64>,
}

impl Weather {
    /// Returns the airport and the hour.
    pub fn place_and_hour(&self) -> (String, i64) {
        (self.origin.clone(), self.hour.as_micros())
    }

    /// Returns the weather class of the demo, by the condition that delays departures most.
    pub fn class(weather: Option<&Weather>) -> &'static str {
        let at_least = |value: Option<f64>, least: f64| value.is_some_and(|value| value >= least);
        match weather {
            None => "weather unknown",
            Some(Weather {
                visib: Some(miles), ..
            }) if *miles < 1.0 => "fog (sight under 1 mile)",
            Some(Weather {
                visib: Some(miles), ..
            }) if *miles < 5.0 => "mist (sight under 5 miles)",
            Some(weather) if at_least(weather.wind_speed, 20.0) => "strong wind (over 20 mph)",
            Some(weather) if at_least(weather.precip, 0.01) => "rain or snow",
            Some(_) => "fair weather",
        }
    }
}

/// A plane.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Plane {
    /// The registration.
    pub tailnum: String,
    /// The manufacturer, in capitals.
    pub manufacturer: String,
}

impl Plane {
    /// Returns the first word of the manufacturer's name, so that "AIRBUS" and "AIRBUS INDUSTRIE"
    /// count together.
    pub fn maker(plane: Option<&Plane>) -> &str {
        plane.map_or("plane unknown", |plane| {
            plane.manufacturer.split(' ').next().unwrap_or_default()
        })
    }
}

/// An airline.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Airline {
    /// The code of the airline.
    pub carrier: String,
    /// The name of the airline.
    pub name: String,
}

/// Reads a value; `NA` in the data is a missing value. In the binary format between the instances
/// of a job the value is an option.
fn unless_na<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: Display> + Deserialize<'de>,
    D: Deserializer<'de>,
{
    if !from.is_human_readable() {
        return Option::deserialize(from);
    }
    match String::deserialize(from)?.as_str() {
        "NA" | "" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .map_err(|error| D::Error::custom(format!("{text:?}: {error}"))),
    }
}

/// Reads a time such as `2013-01-01T10:00:00Z`.
fn rfc3339<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    if !from.is_human_readable() {
        return Timestamp::deserialize(from);
    }
    let text = String::deserialize(from)?;
    let time: jiff::Timestamp = text
        .parse()
        .map_err(|error| D::Error::custom(format!("{text:?}: {error}")))?;
    Ok(Timestamp::from_micros(time.as_microsecond()))
}
