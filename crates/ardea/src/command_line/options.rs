//! Options that several commands have, and the parsers of their values.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ardea_config::parse_duration;
use clap::builder::{OsStringValueParser, TypedValueParser};

/// Options of every command.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Options of every command")]
pub struct GlobalOptions {
    /// Print reports (plan, summary, settings, bench) as JSON on standard output, and errors as
    /// JSON on standard error; the job's own output is unchanged
    #[arg(long, global = true)]
    pub json: bool,
    /// Print neither progress nor a summary; errors are printed all the same
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// List every step of a job in its summary; by default only sources, sinks and named steps
    #[arg(long, short, global = true)]
    pub verbose: bool,
    /// Print progress every second even if standard error is no terminal
    #[arg(long, global = true, conflicts_with = "quiet")]
    pub progress: bool,
    /// Set KEY=VALUE; `ardea config` lists all settings
    #[arg(long = "set", global = true, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<String>,
    /// Read settings from this TOML file instead of ./ardea.toml
    #[arg(long, global = true, value_name = "FILE", env = "ARDEA_CONFIG",
        value_parser = OsStringValueParser::new().try_map(config_file))]
    pub config: Option<PathBuf>,
    /// Interval of live tables if the output is a pipe, at least 100ms (default: only at the end)
    #[arg(long, global = true, value_name = "DURATION", value_parser = at_most_ten_a_second)]
    pub tables_every: Option<Duration>,
}

/// Parses an interval of at least 100 ms, for repeated output.
///
/// # Errors
/// A text for the user.
pub fn at_most_ten_a_second(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(100);
    let every = parse_duration(text).map_err(|error| error.to_string())?;
    match every < SHORTEST {
        true => Err("must be at least 100ms".into()),
        false => Ok(every),
    }
}

/// Parses a number of threads; its upper limit is checked later.
///
/// # Errors
/// A text for the user.
pub fn thread_count(text: &str) -> Result<u32, String> {
    within(1..=u32::MAX, text)
}

/// Parses a whole number in a range. The error does not mention the upper bound if it is
/// `u32::MAX`.
///
/// # Errors
/// A text for the user.
pub fn within(range: RangeInclusive<u32>, text: &str) -> Result<u32, String> {
    let number = text.parse::<u32>().ok();
    let number = number.filter(|number| range.contains(number));
    number.ok_or_else(|| match (*range.start(), *range.end()) {
        (least, u32::MAX) => {
            let such_as = least.max(2);
            format!("write a whole number, {least} or more, such as {such_as}")
        }
        (least, most) => format!("write a whole number from {least} to {most}"),
    })
}

/// Parses the name of a configuration file. The name may come from the environment variable
/// `ARDEA_CONFIG`, which may be empty.
fn config_file(name: OsString) -> Result<PathBuf, &'static str> {
    match name.is_empty() {
        true => Err(
            "it is empty: name a file, or unset the variable ARDEA_CONFIG if it comes from there",
        ),
        false => Ok(PathBuf::from(name)),
    }
}

/// Checks the form KEY=VALUE; the schema checks key and value later.
fn key_value(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some(_) => Ok(text.to_string()),
        None => Err("write KEY=VALUE, such as slice=50us; `ardea config` lists the keys".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_tops_come_ten_times_a_second_at_most() {
        let every = Duration::from_millis(100);
        assert_eq!(at_most_ten_a_second("100ms"), Ok(every));
        for text in ["0s", "1ns", "99ms", "soon"] {
            assert!(at_most_ten_a_second(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_told_what_would_be_one() {
        assert_eq!(thread_count("2"), Ok(2));
        let told = Err("write a whole number, 1 or more, such as 2".to_string());
        assert_eq!(thread_count("0"), told);
        for text in ["x", "-1", "", "1.5", "99999999999"] {
            let told = within(0..=u32::MAX, text).unwrap_err();
            assert!(
                told.starts_with("write a whole number, 0 or more"),
                "{text}"
            );
        }
    }
}
