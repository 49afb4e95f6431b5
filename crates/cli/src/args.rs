//! The command line: what can be asked for, and how it is explained.

mod cluster;
mod map;

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::bench::BenchCommand;
use crate::failure::EXIT_CODES;

use cluster::{
    CLUSTER_HELP, LOGS_HELP, METRICS_HELP, RECOVER_HELP, RESCALE_HELP, STATE_HELP, SUBMIT_HELP,
    UPDATE_HELP, UPGRADE_HELP,
};
pub use cluster::{
    ClusterCommand, ClusterStartArgs, ClusterStopArgs, DrainArgs, KillArgs, ListArgs, LogsArgs,
    MetricsArgs, RecoverArgs, RemoteJob, RescaleArgs, RestartArgs, StateCommand, StateDumpArgs,
    StateRemoveArgs, SubmitArgs, TopArgs, UndrainArgs, UpdateArgs, UpgradeArgs, Where,
};
use map::MAP_HELP;
pub use map::{
    MapArgs, MapCommand, MapFilterArgs, MapKeyArgs, MapPutArgs, MapScanArgs, MapWatchArgs,
};

/// Low-latency stream processing: run jobs, look at them, measure them.
#[derive(Parser, Debug)]
#[command(
    name = "ardea",
    version,
    after_help = EXIT_CODES,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 120
)]
pub struct Args {
    /// For every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The long name of the option that says how many threads, of those commands that run jobs.
pub const THREADS: &str = "threads";

/// Options of every command; behind the name of a job they are ardea's unless the job has one of that name.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Print reports (plan, summary, settings, bench) as JSON on standard output, and errors as JSON on standard error;
    /// what a job itself writes to standard output stays as it is
    #[arg(long, global = true)]
    pub json: bool,
    /// Print no progress and no summary; what went wrong is told all the same
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Show every step of a job in its summary, and not only sources, sinks, and steps with a name
    #[arg(long, short, global = true)]
    pub verbose: bool,
    /// Print progress even where standard error is no terminal, a line a second
    #[arg(long, global = true, conflicts_with = "quiet")]
    pub progress: bool,
    /// Change a setting; `ardea config` lists them
    #[arg(long = "set", global = true, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<String>,
    /// Read settings from this TOML file, and not from ./ardea.toml
    #[arg(long, global = true, value_name = "FILE", env = "ARDEA_CONFIG",
        value_parser = OsStringValueParser::new().try_map(config_file))]
    pub config: Option<PathBuf>,
    /// In a pipe, print live tables this often, at most ten times a second, and not only at the end
    #[arg(long, global = true, value_name = "DURATION", value_parser = at_most_ten_a_second)]
    pub tables_every: Option<Duration>,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Replay the 2013 New York flights and show their delays live in the terminal; q ends it, as Ctrl-C does
    Demo(DemoArgs),
    /// Run a job until it ends
    #[command(after_help = RUN_HELP)]
    Run(JobArgs),
    /// List the jobs that can be run
    Jobs,
    /// List the components that topologies in files (.yaml) may be made of, and what can be set of each
    Components(ComponentsArgs),
    /// Show how a job would run, without running it; or how a job of a cluster does run
    #[command(after_help = PLAN_HELP)]
    Plan(PlanArgs),
    /// Submit a job to a cluster
    #[command(after_help = SUBMIT_HELP)]
    Submit(SubmitArgs),
    /// List the jobs of a cluster
    List(ListArgs),
    /// Show all that is known of a job of a cluster: its program, containers, problems, and what happened
    Describe(RemoteJob),
    /// Have the sources of a job read again
    Activate(RemoteJob),
    /// Have the sources of a job read nothing until it is activated
    Deactivate(RemoteJob),
    /// End a job of a cluster, and leave nothing of it behind but what it wrote, for a day
    Kill(KillArgs),
    /// Stop what runs in a container of a job, and start it again
    Restart(RestartArgs),
    /// Give vertices of a job other numbers of instances, while it runs
    #[command(after_help = UPDATE_HELP)]
    Update(UpdateArgs),
    /// Have another program follow that of a job, with its state; if it doesn't come up the one before comes back by itself
    #[command(after_help = UPGRADE_HELP)]
    Upgrade(UpgradeArgs),
    /// Spread a job over another number of workers, while it runs
    #[command(after_help = RESCALE_HELP)]
    Rescale(RescaleArgs),
    /// Print what the processes of a job have written, also when it has ended
    #[command(after_help = LOGS_HELP)]
    Logs(LogsArgs),
    /// Print what was measured of a job
    #[command(after_help = METRICS_HELP)]
    Metrics(MetricsArgs),
    /// Show how the vertices and containers of a job are doing, again and again, until q, Ctrl-C or the job's end
    Top(TopArgs),
    /// Show the snapshots of a job that survives (`--set guarantee=… --set snapshots.folder=FOLDER`)
    #[command(after_help = SNAPSHOTS_HELP)]
    Snapshots(SnapshotsArgs),
    /// Have a job in safe mode begin again, when the reason is gone
    #[command(after_help = RECOVER_HELP)]
    Recover(RecoverArgs),
    /// Write a savepoint of a job that survives: all its state, in a folder of its own; or look at one
    #[command(
        after_help = SAVEPOINT_HELP,
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true
    )]
    Savepoint(SavepointArgs),
    /// Tell what becomes of each state of a job when another program goes on from it: keep, migrate, drop, add, or impossible
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Show the copies of a job that write a file together: which live, and how far behind each is
    #[command(after_help = TWINS_HELP)]
    Twins(TwinsArgs),
    /// Start, stop and look at clusters
    #[command(subcommand, after_help = CLUSTER_HELP)]
    Cluster(ClusterCommand),
    /// Look at the maps that a cluster keeps in memory, which jobs write to, and change them
    #[command(subcommand, after_help = MAP_HELP)]
    Map(MapCommand),
    /// Look into what a cluster remembers
    #[command(subcommand, after_help = STATE_HELP)]
    State(StateCommand),
    /// Measure; prints a table, or in a pipe and with --json one JSON object a run
    #[command(subcommand)]
    Bench(BenchCommand),
    /// The NEXMark auction benchmark: make events, compute queries over them
    #[command(subcommand)]
    Nexmark(NexmarkCommand),
    /// List all settings: their values, where each comes from, and what it trades
    Config(ConfigArgs),
    /// Print a script that completes ardea's commands in a shell
    #[command(
        after_help = "Example: ardea completions bash > ~/.local/share/bash-completion/completions/ardea"
    )]
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the version
    Version,
}

const RUN_HELP: &str = "\
`ardea jobs` lists the jobs, `ardea run JOB --help` explains one. What stands behind the job's name is the job's; options \
of ardea are found there too. Where live tables show in the terminal, q does what a first Ctrl-C does.";

const PLAN_HELP: &str = "\
Examples:
  ardea plan wordcount book.txt
  ardea plan word-count.yaml --dry-run --set job.containers=2 --json
  ardea plan --cluster prod word-count

A name that no job which comes with ardea has is that of a cluster's job; with --cluster or --at every name is. \
`ardea jobs` lists the jobs that come with ardea. What stands behind a job's name is the job's; options of ardea are found \
there too. With --dry-run the job is packed as it would be for a cluster.";

const SNAPSHOTS_HELP: &str = "\
Examples:
  ardea snapshots state/wordcount --check
  ardea snapshots word-count --cluster prod

What is no folder here is a job of a cluster; with --cluster or --at everything is.";

/// `ardea snapshots`.
#[derive(clap::Args, Debug)]
pub struct SnapshotsArgs {
    /// A job of a cluster; or the folder or s3://bucket/prefix of a job: of one process what it was given as snapshots.folder,
    /// of a cluster what is in there with its name
    #[arg(value_name = "JOB|FOLDER")]
    pub what: PathBuf,
    /// Read all that is there, and verify it
    #[arg(long)]
    pub check: bool,
    /// Where it is.
    #[command(flatten)]
    pub place: Where,
}

const SAVEPOINT_HELP: &str = "\
Examples:
  ardea savepoint state/wordcount --to saved/before-v2
  ardea savepoint word-count --cluster prod --to /mnt/saved/before-v2
  ardea savepoint inspect saved/before-v2 --check
  ardea run wordcount --set guarantee=exactly-once --set snapshots.folder=state/v2 --set recovery.from=saved/before-v2 book.txt

What is no folder here is a job of a cluster; with --cluster or --at everything is. A job that runs ends an epoch for it, writes it, and goes on; \
of a job of a cluster the host that leads it writes it, to a folder there.";

const DIFF_HELP: &str = "\
Examples:
  ardea diff saved/before-v2 ./wordcount-v2 book.txt
  ardea diff --cluster prod word-count ./wordcount-v2 book.txt
  ardea diff saved/before-v2 saved/after
  ardea diff --set recovery.drop=tops state/wordcount wordcount book.txt

OLD is a job of a cluster, the folder of a savepoint, or that of a job (snapshots.folder); what is no folder here is a job, with --cluster or --at \
everything is. NEW is such a folder, a program that is a job, or the name of a job that \
comes with ardea; what stands behind it are the job's arguments. Fails with code 2 where something is impossible.";

const TWINS_HELP: &str = "\
Example:
  ardea twins /mnt/out/results.txt

A copy that is gone is shown until another one takes its number. `behind` is event time, to the copy that is the furthest; `first` and `met` \
count slices that a copy brought to the file, or found there, since it began.";

/// `ardea twins`.
#[derive(clap::Args, Debug)]
pub struct TwinsArgs {
    /// The file that they write
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `ardea savepoint`.
#[derive(clap::Args, Debug)]
pub struct SavepointArgs {
    /// Look at one.
    #[command(subcommand)]
    pub command: Option<SavepointCommand>,
    /// A job of a cluster; or the folder or s3://bucket/prefix of a job: of one process what it was given as snapshots.folder,
    /// of a cluster what is in there with its name
    #[arg(value_name = "JOB|FOLDER", required = true)]
    pub what: Option<PathBuf>,
    /// Where it is to be: a folder that is empty or isn't there, or s3://bucket/prefix
    #[arg(long, value_name = "PLACE", required = true)]
    pub to: Option<PathBuf>,
    /// Where the job is.
    #[command(flatten)]
    pub place: Where,
}

/// `ardea savepoint …`.
#[derive(Subcommand, Debug)]
pub enum SavepointCommand {
    /// Show what is in a savepoint
    Inspect {
        /// Its folder
        #[arg(value_name = "PLACE")]
        place: PathBuf,
        /// Read all of it, and verify it
        #[arg(long)]
        check: bool,
    },
}

/// `ardea diff`.
#[derive(clap::Args, Debug)]
pub struct DiffArgs {
    /// A job of a cluster, or the folder of a savepoint or of a job
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// Where the job is.
    #[command(flatten)]
    pub place: Where,
    /// Another such folder, a program that is a job, or a job's name
    #[arg(value_name = "NEW")]
    pub new: String,
    /// The job's own arguments
    #[arg(
        value_name = "ARGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub args: Vec<String>,
}

/// `ardea config`.
#[derive(clap::Args, Debug)]
pub struct ConfigArgs {
    /// Those of this cluster, with what its table [clusters.NAME] of ardea.toml says
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
}

/// `ardea components`.
#[derive(clap::Args, Debug)]
pub struct ComponentsArgs {
    /// Only this one
    pub name: Option<String>,
}

/// `ardea plan`.
#[derive(clap::Args, Debug)]
pub struct PlanArgs {
    /// Pack it as it would be for a cluster; none is asked
    #[arg(long)]
    pub dry_run: bool,
    /// A cluster's job, and not one that comes with ardea.
    #[command(flatten)]
    pub place: Where,
    /// Which job.
    #[command(flatten)]
    pub job: JobArgs,
}

/// `ardea demo`.
#[derive(clap::Args, Debug)]
pub struct DemoArgs {
    /// How many times faster than it happened, or `max`
    #[arg(long, value_name = "N|max")]
    pub speed: Option<String>,
    /// Cooperative threads; all cores unless told
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<u32>,
    /// Further arguments of the job; `ardea run flights --help` lists them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    pub args: Vec<String>,
}

/// A job and its arguments.
#[derive(clap::Args, Debug)]
pub struct JobArgs {
    /// Cooperative threads; all cores unless told
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<u32>,
    /// The job's name, then its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        num_args = 1..,
        value_names = ["JOB", "ARGS"]
    )]
    pub job: Vec<String>,
}

impl JobArgs {
    /// The job's name, and what follows it.
    pub fn split(&self) -> (&str, &[String]) {
        // The command line has no such command without a name.
        self.job
            .split_first()
            .map_or(("", &[]), |(name, rest)| (name.as_str(), rest))
    }
}

/// `ardea nexmark …`.
#[derive(Subcommand, Debug)]
pub enum NexmarkCommand {
    /// Write events as JSON lines: the same seed gives the same bytes
    Generate(GenerateArgs),
    /// Compute a query over a file of events, one JSON object a result
    Run(QueryArgs),
}

/// `ardea nexmark generate`.
#[derive(clap::Args, Debug)]
pub struct GenerateArgs {
    /// How many events; of 50, 1 is a person, 3 are auctions, 46 bids
    #[arg(long, value_name = "N", value_parser = count)]
    pub events: u64,
    /// Another seed gives other events
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// The file to write, `-` for standard output; compressed if its name ends in .gz or .zst
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// Let events come late by up to this much event time, such as 5s
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "0s")]
    pub out_of_order: Duration,
    /// Events in a second of event time
    #[arg(long, value_name = "N", value_parser = at_least_one, default_value = "10000")]
    pub rate: u64,
}

/// `ardea nexmark run`.
#[derive(clap::Args, Debug)]
pub struct QueryArgs {
    /// The query: q0 to q8, or q13
    #[arg(long, value_name = "QUERY")]
    pub query: String,
    /// The file of events, as `ardea nexmark generate` writes it, `-` for standard input; it may be compressed
    #[arg(long, short, value_name = "FILE")]
    pub input: PathBuf,
    /// The file for the results, `-` for standard output; compressed if its name ends in .gz or .zst
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// The length of windows (q5, q7, q8); 10s unless told
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub window: Option<Duration>,
    /// How far windows slide (q5); 2s unless told
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub slide: Option<Duration>,
    /// Cooperative threads; all cores unless told
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<u32>,
    /// The side input of q13: lines of `key,value`
    #[arg(long, value_name = "FILE.csv")]
    pub side: Option<PathBuf>,
    /// How far events are out of order at most; windows then close as soon as they can, and not at the end of the file
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub out_of_order: Option<Duration>,
}

/// A duration such as `500ms`, `10s` or `1m30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    ardea_config::parse_duration(text).map_err(|error| error.to_string())
}

/// How often something is looked at or printed whole.
fn at_most_ten_a_second(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(100);
    let every = duration(text)?;
    match every < SHORTEST {
        true => Err("must be at least 100ms".into()),
        false => Ok(every),
    }
}

/// A number of threads; how many make sense is seen later.
fn threads(text: &str) -> Result<u32, String> {
    within(1..=u32::MAX, text)
}

/// A number such as that of a container or an instance.
fn number(text: &str) -> Result<u32, String> {
    within(0..=u32::MAX, text)
}

/// A whole number of that range; without an upper bound that people would meet, if that is the type's.
fn within(range: RangeInclusive<u32>, text: &str) -> Result<u32, String> {
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

/// As [`count`], and not none.
fn at_least_one(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("must be at least 1".into()),
        number => Ok(number),
    }
}

/// The name of a configuration file; which may come from the environment, where an empty one is soon left behind.
fn config_file(name: OsString) -> Result<PathBuf, &'static str> {
    match name.is_empty() {
        true => Err(
            "it is empty: name a file, or unset the variable ARDEA_CONFIG if it comes from there",
        ),
        false => Ok(PathBuf::from(name)),
    }
}

/// A change of a setting; what its key and value may be is known to the settings.
fn key_value(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some(_) => Ok(text.to_string()),
        None => Err("write KEY=VALUE, such as slice=50us; `ardea config` lists the keys".into()),
    }
}

/// A number of things, which people may write with underscores: `1_000_000`.
pub fn count(text: &str) -> Result<u64, String> {
    ardea_config::parse_count(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_follows_a_jobs_name_is_left_to_the_job() {
        let args =
            Args::try_parse_from(["ardea", "run", "--json", "wc", "--help", "--json"]).unwrap();
        let Command::Run(run) = args.command else {
            panic!("not a run")
        };
        assert!(args.global.json);
        assert_eq!(run.job, ["wc", "--help", "--json"]);
    }

    #[test]
    fn the_demo_passes_on_what_it_does_not_know() {
        let args =
            Args::try_parse_from(["ardea", "demo", "--speed", "max", "--data", "x"]).unwrap();
        let Command::Demo(demo) = args.command else {
            panic!("not the demo")
        };
        assert_eq!(demo.speed.as_deref(), Some("max"));
        assert_eq!(demo.args, ["--data", "x"]);
    }

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
        assert_eq!(threads("2"), Ok(2));
        assert_eq!(number("0"), Ok(0));
        let told = Err("write a whole number, 1 or more, such as 2".to_string());
        assert_eq!(threads("0"), told);
        for text in ["x", "-1", "", "1.5", "99999999999"] {
            let told = number(text).unwrap_err();
            assert!(
                told.starts_with("write a whole number, 0 or more"),
                "{text}"
            );
        }
    }

    #[test]
    fn counts_may_have_underscores() {
        assert_eq!(count("1_000_000"), Ok(1_000_000));
        assert!(count("many").is_err());
        assert!(at_least_one("0").is_err());
    }
}
