//! The demo: all departures of 2013 from the three airports of New York, replayed.
//!
//! Flights are replayed in the order of schedule. The event time is the actual departure, so events
//! are out of order by up to 1,301 minutes. Times are UTC; days begin at 05:00 UTC, midnight in a
//! New York winter.

mod analyses;
mod data;
mod recorded;
mod records;
mod tables;

use std::time::Duration;

use ardea::{Pipeline, Result};

pub use analyses::analyse;
pub use data::{Data, Rows};
pub use records::{Airline, Airport, Departure, Flight, Plane, Weather};
pub use tables::{Analyses, CarrierDelays, Congestion, DailyDelays, Delays, RouteCount};

use crate::arguments::{Arguments, speed};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Builds the job for these arguments; see the catalogue for their meaning.
pub(crate) fn build(args: &[String]) -> Result<Pipeline> {
    let mut args = Arguments::new("flights", args);
    let speed = args.parsed("--speed", speed)?.unwrap_or(525_600.0);
    let out_of_order = args.duration("--out-of-order", 16 * HOUR)?;
    let directory = args.text("--data")?;
    args.finish()?;
    let data = directory.map_or_else(Data::embedded, Data::in_directory);
    let p = Pipeline::new("flights");
    tables::show(analyse(&p, &data, speed, out_of_order));
    Ok(p)
}
