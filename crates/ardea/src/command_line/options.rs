//! Options that several commands have, and the parsers of their values.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ardea_config::parse_duration;
use clap::Subcommand;
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

/// The options that select a cluster.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ClusterArgs {
    /// The cluster; its settings are in the table [clusters.NAME] of ardea.toml
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Address of the cluster's REST interface, http://HOST:PORT (default: found in the metadata
    /// store)
    #[arg(long, value_name = "URL")]
    pub at: Option<String>,
}

/// The options of `submit`.
#[derive(clap::Args, Clone, Debug)]
pub struct SubmitOptions {
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
    /// Name of the job on the cluster (default: the job's own)
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// File or folder to ship with the job; may be repeated
    #[arg(long = "file", value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// Return without waiting until the job runs
    #[arg(long)]
    pub detach: bool,
}

/// The options of `upgrade`.
#[derive(clap::Args, Clone, Debug)]
pub struct UpgradeOptions {
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
    /// File or folder to ship with the job; may be repeated
    #[arg(long = "file", value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// Time limit for the new program's first committed epoch (default: 1 minute)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub within: Option<Duration>,
    /// Return without waiting until the upgrade is done
    #[arg(long)]
    pub detach: bool,
}

/// The arguments of `checkpoints`.
#[derive(clap::Args, Clone, Debug)]
pub struct CheckpointsArgs {
    /// A job of a cluster, or the folder or s3://bucket/prefix of a job's checkpoints:
    /// checkpoints.folder itself for a job of one process, its subfolder with the job's name for a
    /// job of a cluster
    #[arg(value_name = "JOB|FOLDER")]
    pub what: PathBuf,
    /// Read and verify all data
    #[arg(long)]
    pub check: bool,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
}

/// The arguments of `savepoint`.
#[derive(clap::Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SavepointArgs {
    /// The subcommand, which inspects an existing savepoint.
    #[command(subcommand)]
    pub command: Option<SavepointCommand>,
    /// A job of a cluster, or the folder or s3://bucket/prefix of a job's checkpoints:
    /// checkpoints.folder itself for a job of one process, its subfolder with the job's name for a
    /// job of a cluster
    #[arg(value_name = "JOB|FOLDER", required = true)]
    pub what: Option<PathBuf>,
    /// Destination: a folder that is empty or does not exist, or s3://bucket/prefix
    #[arg(long, value_name = "PLACE", required = true)]
    pub to: Option<PathBuf>,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
}

/// The subcommands of `savepoint`.
#[derive(Subcommand, Clone, Debug)]
pub enum SavepointCommand {
    /// Show the contents of a savepoint
    Inspect {
        /// The savepoint's folder or s3://bucket/prefix
        #[arg(value_name = "PLACE")]
        place: PathBuf,
        /// Read and verify all data
        #[arg(long)]
        check: bool,
    },
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
