//! The command line of the demo.

use std::path::PathBuf;
use std::time::Duration;

use ardea::command_line::{thread_count, usage_error};
use ardea::config::parse_duration;
use ardea::{Pipeline, Result};
use clap::{Args, Command, FromArgMatches};

use super::{Data, analyse, tables};

/// The name of the job.
const JOB: &str = "flights";

/// The arguments of the demo.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// The options of the job.
    #[command(flatten)]
    pub flights: FlightOptions,
    /// Number of cooperative threads (default: all cores)
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<u32>,
}

/// The options of the job.
#[derive(Args, Clone, Debug)]
pub struct FlightOptions {
    /// Replay speed, as a multiple of real time, or `max`; 525600 is a year in a minute
    #[arg(long, value_name = "N|max", value_parser = speed, default_value = "525600")]
    pub speed: f64,
    /// Lateness up to which delayed flights are awaited; later ones are late
    #[arg(long, value_name = "DURATION", value_parser = positive, default_value = "16h")]
    pub out_of_order: Duration,
    /// Read flights.csv.zst and the other files from this folder, and not from the program
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

impl FlightOptions {
    /// Parses the arguments of the job. A `--`, which separates them from other options, is
    /// omitted.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea::core::ErrorCode::InvalidConfig) for a wrong argument.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let separator = args.iter().position(|arg| arg == "--");
        let args = args.iter().enumerate();
        let args = args.filter(|(place, _)| Some(*place) != separator);
        let command = Command::new(JOB).no_binary_name(true);
        let command = FlightOptions::augment_args(command);
        let matches = command.try_get_matches_from(args.map(|(_, arg)| arg));
        let options = matches.and_then(|matches| FlightOptions::from_arg_matches(&matches));
        options.map_err(|error| usage_error(&error))
    }

    /// Returns the job.
    pub(crate) fn job(&self) -> Pipeline {
        let data = self.data.as_ref();
        let data = data.map_or_else(Data::embedded, Data::in_directory);
        let p = Pipeline::new(JOB);
        tables::show(analyse(&p, &data, self.speed, self.out_of_order));
        p
    }
}

/// Parses the speed of a replay as a multiple of real time; `max` is without a limit.
fn speed(text: &str) -> std::result::Result<f64, &'static str> {
    match text.parse() {
        _ if text == "max" => Ok(f64::INFINITY),
        Ok(speed) if speed > 0.0 => Ok(speed),
        _ => Err("give a number above 0, such as 3600 for an hour in a second, or max"),
    }
}

/// Parses a duration longer than zero.
fn positive(text: &str) -> std::result::Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be more than zero".to_string()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<FlightOptions> {
        let args: Vec<String> = line.split_whitespace().map(String::from).collect();
        FlightOptions::parse(&args)
    }

    #[test]
    fn options_have_defaults_and_may_follow_two_dashes() {
        let options = parse("").unwrap();
        assert!(options.data.is_none());
        assert_eq!(options.out_of_order, Duration::from_secs(16 * 3600));
        assert_eq!(options.speed, 525_600.0);
        let options = parse("-- --speed=max --data x").unwrap();
        assert!(options.speed.is_infinite() && options.data == Some("x".into()));
    }

    #[test]
    fn a_wrong_option_is_refused_with_a_hint() {
        let error = parse("--sped 5").unwrap_err().to_string();
        assert!(error.contains("'--speed'"), "{error}");
        for line in ["--speed 0", "--speed fast", "--out-of-order 0s", "more"] {
            let error = parse(line).unwrap_err().to_string();
            assert!(
                error.contains("ARD-102") && error.contains("--help"),
                "{error}"
            );
        }
    }
}
