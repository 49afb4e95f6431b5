//! The parameters of benches as options of a command line: parsers of their values, and defaults.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_config::{parse_count, parse_duration};
use ardea_core::Guarantee;
use ardea_engine::ExecutionMode;
use clap::{Args, Command};

use crate::Report;

/// The longest time accepted for any parameter: longer ones are typing errors, and would overflow a
/// clock.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// A benchmark: its parameters, which are the options of its command, and its run.
pub trait Bench: Args + Default {
    /// Runs the benchmark; `progress` receives status texts.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are invalid; the
    /// failure of the measured job.
    fn run(&self, progress: &mut dyn FnMut(&str)) -> ardea_core::Result<Report>;
}

/// A benchmark of a job with a processing guarantee.
pub trait WithGuarantee: Bench {
    /// Returns true if the job has state that outlives failures.
    fn keeps_state(&self) -> bool;

    /// Returns the parameters of the same run without the guarantee.
    #[must_use]
    fn without_guarantee(&self) -> Self;
}

/// Returns the parameters of a command line without options.
pub(crate) fn defaults<P: Args>() -> P {
    let command = P::augment_args(Command::new("bench"));
    let parsed = command.try_get_matches_from(["bench"]);
    let parsed = parsed.and_then(|matches| P::from_arg_matches(&matches));
    // Fails only if an option lacks a default, which a test checks for each benchmark.
    parsed.unwrap_or_else(|error| error.exit())
}

/// Parses a time of at most a year.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    match time <= LONGEST {
        true => Ok(time),
        false => Err(format!("too long: {} at most", format_duration(LONGEST))),
    }
}

/// Parses a number of things in memory.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let count = parse_count(text).map_err(|error| error.to_string())?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Parses the name of an execution mode that a benchmark can run.
pub(crate) fn mode(name: &str) -> Result<ExecutionMode, String> {
    let mut all = [ExecutionMode::Continuous, ExecutionMode::MicroBatch].into_iter();
    let found = all.find(|one| one.name() == name);
    found.ok_or_else(|| "give continuous or micro-batch".into())
}

/// Parses the name of a guarantee.
pub(crate) fn guarantee(name: &str) -> Result<Guarantee, String> {
    let all = [
        Guarantee::None,
        Guarantee::AtLeastOnce,
        Guarantee::ExactlyOnce,
    ];
    let found = all.into_iter().find(|one| one.as_str() == name);
    found.ok_or_else(|| "give none, at-least-once or exactly-once".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_beyond_a_year_is_refused() {
        assert_eq!(time("1m30s").unwrap(), Duration::from_secs(90));
        assert_eq!(time("8760h").unwrap(), LONGEST);
        for text in ["8761h", "200000000000h", "soon"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mode_is_named() {
        assert_eq!(mode("micro-batch"), Ok(ExecutionMode::MicroBatch));
        assert!(mode("auto").is_err() && mode("").is_err());
    }

    #[test]
    fn a_guarantee_is_named() {
        assert_eq!(guarantee("none").unwrap(), Guarantee::None);
        assert_eq!(guarantee("exactly-once").unwrap(), Guarantee::ExactlyOnce);
        assert!(guarantee("twice").is_err() && size("many").is_err());
    }
}
