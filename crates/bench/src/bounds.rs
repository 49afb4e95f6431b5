//! Limits of the parameters of all benches: longer times and higher rates are typing errors, and
//! would overflow a clock.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::{Error, ErrorCode, Result};

/// The longest time accepted for any parameter.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);
/// The highest rate of a schedule, in records a second.
const FASTEST: u64 = 1_000_000_000;

/// Returns an error for an invalid parameter.
pub(crate) fn refused(what: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidConfig, what)
}

/// Refuses times of more than a year; each comes with the flag that sets it.
pub(crate) fn check_times(times: &[(&str, Duration)]) -> Result<()> {
    match times.iter().find(|(_, time)| *time > LONGEST) {
        None => Ok(()),
        Some((flag, time)) => Err(refused(format!(
            "{flag} {} is too long: {} at most",
            format_duration(*time),
            format_duration(LONGEST)
        ))),
    }
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

/// Refuses a measured time of zero.
pub(crate) fn check_duration(duration: Duration) -> Result<()> {
    if duration.is_zero() {
        return Err(refused("the duration is zero; give a longer one"));
    }
    Ok(())
}

/// Refuses zero threads.
pub(crate) fn check_threads(threads: u32) -> Result<()> {
    if threads == 0 {
        return Err(refused("the number of threads is zero; give at least 1"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_beyond_a_year_is_refused_by_the_name_of_its_flag() {
        let day = Duration::from_secs(86_400);
        assert!(check_times(&[("--duration", LONGEST), ("--warmup", day)]).is_ok());
        for time in [LONGEST + Duration::from_nanos(1), Duration::MAX] {
            let error = check_times(&[("--duration", day), ("--warmup", time)]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
            assert!(error.to_string().contains("--warmup "), "{error}");
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
