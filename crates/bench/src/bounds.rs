//! Limits of the parameters of all benches: values out of them are typing errors.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::{Error, ErrorCode, Result};

/// The highest rate of a schedule, in records a second.
const FASTEST: u64 = 1_000_000_000;

/// The maximum number of processes on one machine.
pub(crate) const MOST_PROCESSES: u32 = 64;

/// Returns an error for an invalid parameter.
pub(crate) fn refused(what: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidConfig, what)
}

/// Refuses a number outside of a range; it comes with the flag that sets it.
pub(crate) fn check_range<N: PartialOrd + Display>(
    flag: &str,
    number: N,
    range: RangeInclusive<N>,
) -> Result<()> {
    if range.contains(&number) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(refused(format!(
        "{flag} {number} is not from {least} to {most}"
    )))
}

/// Refuses a time of zero.
pub(crate) fn check_positive(flag: &str, time: Duration) -> Result<()> {
    if time.is_zero() {
        return Err(refused(format!("{flag} is zero; give a longer time")));
    }
    Ok(())
}

/// Refuses a rate of zero, and rates above the maximum. `what` names the unit that is counted.
pub(crate) fn check_rate(rate: u64, what: &str) -> Result<()> {
    if (1..=FASTEST).contains(&rate) {
        return Ok(());
    }
    Err(refused(format!(
        "--rate {rate}: {what} a second must be from 1 to {FASTEST}"
    )))
}

/// Refuses a rate of less than one record a second for each worker.
pub(crate) fn check_share(rate: u64, workers: u32) -> Result<()> {
    if rate >= u64::from(workers) {
        return Ok(());
    }
    Err(refused(format!(
        "--rate {rate} is less than one for each of {workers} workers"
    )))
}

/// Refuses a kill after the measured time.
pub(crate) fn check_within(at: Duration, duration: Duration) -> Result<()> {
    if at < duration {
        return Ok(());
    }
    Err(refused(format!(
        "--at {} is not within the measured time of {}",
        format_duration(at),
        format_duration(duration)
    )))
}

/// Refuses a measured time of zero.
pub(crate) fn check_duration(duration: Duration) -> Result<()> {
    check_positive("--duration", duration)
}

/// Refuses zero threads, and more than a process can have.
pub(crate) fn check_threads(threads: u32) -> Result<()> {
    if threads == 0 {
        return Err(refused("the number of threads is zero; give at least 1"));
    }
    ardea::command_line::check_threads(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_out_of_its_range_is_refused_by_the_name_of_its_flag() {
        assert!(check_range("--keys", 1, 1..=5).is_ok());
        for number in [0, 6] {
            let error = check_range("--keys", number, 1..=5).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
            let told = format!("--keys {number} is not from 1 to 5");
            assert!(error.to_string().contains(&told), "{error}");
        }
    }

    #[test]
    fn a_rate_is_at_least_one_and_at_most_what_a_schedule_has_room_for() {
        for rate in [1, FASTEST] {
            assert!(check_rate(rate, "events").is_ok());
        }
        for rate in [0, FASTEST + 1, u64::MAX] {
            let error = check_rate(rate, "events").unwrap_err().to_string();
            assert!(error.contains(&format!("--rate {rate}")), "{error}");
        }
    }
}
