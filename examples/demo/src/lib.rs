//! The demo: all departures of 2013 from the three airports of New York, replayed.
//!
//! Flights are replayed in the order of schedule. The event time is the actual departure, so events
//! are out of order by up to 1,301 minutes. Times are UTC; days begin at 05:00 UTC, midnight in a
//! New York winter.
//!
//! * `options`: the command line of the job; [`run`]: the demo with progress and summary;
//! * `data`, `records`, `recorded`: the files, their rows, and the source that replays them;
//! * `analyses`: the pipeline; `tables`: the live tables.
#![forbid(unsafe_code)]

mod analyses;
mod data;
mod options;
mod recorded;
mod records;
mod tables;

use std::time::Duration;

use ardea::command_line::Context;
use ardea::console::Failure;
use ardea::{Pipeline, Result};

pub use analyses::analyse;
pub use data::{Data, Rows};
pub use options::{DemoArgs, FlightOptions};
pub use records::{Airline, Airport, Departure, Flight, Plane, Weather};
pub use tables::{Analyses, CarrierDelays, Congestion, DailyDelays, Delays, RouteCount};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Runs the demo in this process until it ends.
///
/// # Errors
/// As [`Context::run_job`].
pub fn run(args: &DemoArgs, context: &Context) -> std::result::Result<(), Failure> {
    let node = context.node_config(args.threads)?;
    context.run_job(args.flights.job(), node)
}

/// Builds the job for these arguments, which [`FlightOptions`] describes.
///
/// # Errors
/// [`InvalidConfig`](ardea::core::ErrorCode::InvalidConfig) for a wrong argument.
pub fn build(args: &[String]) -> Result<Pipeline> {
    Ok(FlightOptions::parse(args)?.job())
}
