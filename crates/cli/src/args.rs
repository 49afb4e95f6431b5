//! The command line: commands, options and their help texts.

mod access;
mod cluster;
mod instance;
mod map;

use std::path::PathBuf;
use std::time::Duration;

use ardea::command_line::{
    CheckpointsArgs, ClusterArgs, EXIT_CODES, GlobalOptions, ReplayOptions, SavepointArgs,
    thread_count, within,
};
use ardea_config::{parse_count, parse_duration};
use ardea_demo::DemoArgs;
use clap::{Parser, Subcommand};
use clap_complete::Shell;

#[cfg(feature = "bench")]
use crate::commands::bench::BenchCommand;

use access::TOKEN_HELP;
pub use access::{AuditArgs, TokenCommand, TokenCreateArgs, TokenRevokeArgs};
use cluster::{
    CLUSTER_HELP, LOGS_HELP, METASTORE_HELP, METRICS_HELP, RECOVER_HELP, RESCALE_HELP, SUBMIT_HELP,
    UPGRADE_HELP,
};
pub use cluster::{
    ClusterCommand, ClusterStartArgs, ClusterStopArgs, DrainArgs, KillArgs, ListArgs, LogsArgs,
    MetastoreCommand, MetastoreDumpArgs, MetastoreRemoveArgs, MetricsArgs, PythonArgs, RecoverArgs,
    RemoteJob, RescaleArgs, RestartArgs, SubmitArgs, TopArgs, UndrainArgs, UpgradeArgs,
};
pub use instance::{InstanceCheckArgs, InstanceCommands};
use map::MAP_HELP;
pub use map::{
    MapArgs, MapCommand, MapFilterArgs, MapKeyArgs, MapPutArgs, MapScanArgs, MapWatchArgs,
};

/// Low-latency stream processing: run, manage and benchmark jobs
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
    /// The options of every command. After a job's name, such an option is ardea's unless the job
    /// has an option of that name.
    #[command(flatten)]
    pub global: GlobalOptions,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The long name of the option with the number of threads, for commands that run jobs.
pub const THREADS: &str = "threads";

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Replay the 2013 New York flights and show their delays live in the terminal; q stops it, as
    /// Ctrl-C does
    Demo(DemoArgs),
    /// Run a job until it ends
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// List the jobs that come with ardea
    Examples,
    /// Infer the schema of a file of JSON lines, CSV or Parquet, and print it as a Rust struct, a
    /// Python class and an SQL table
    #[command(after_help = INSPECT_HELP)]
    Inspect(InspectArgs),
    /// Work with instances that run in processes of their own
    #[command(subcommand)]
    Instance(InstanceCommands),
    /// List the components for topologies in YAML files, with their settings
    Components(ComponentsArgs),
    /// Show how a job would run, without running it, or how a job of a cluster is running
    #[command(after_help = PLAN_HELP)]
    Plan(PlanArgs),
    /// Submit a job to a cluster
    #[command(after_help = SUBMIT_HELP)]
    Submit(SubmitArgs),
    /// List the jobs of a cluster
    List(ListArgs),
    /// Show a job of a cluster: its program, containers, problems, and history
    Describe(RemoteJob),
    /// Pause a job's sources
    #[command(alias = "deactivate")]
    Pause(RemoteJob),
    /// Resume a job's sources
    #[command(alias = "activate")]
    Resume(RemoteJob),
    /// Stop a job and delete its state; logs are kept for a day
    Kill(KillArgs),
    /// Restart a container of a job
    Restart(RestartArgs),
    /// Upgrade a running job to a new program, keeping its state; rolls back automatically if the
    /// new program fails to start
    #[command(after_help = UPGRADE_HELP)]
    Upgrade(UpgradeArgs),
    /// Change the parallelism of vertices, or the number of workers, of a running job
    #[command(alias = "update", after_help = RESCALE_HELP)]
    Rescale(RescaleArgs),
    /// Print the output of a job's processes, also after the job has ended
    #[command(after_help = LOGS_HELP)]
    Logs(LogsArgs),
    /// Print a job's metrics
    #[command(after_help = METRICS_HELP)]
    Metrics(MetricsArgs),
    /// Show the vertices and containers of a job, updated continuously, until q, Ctrl-C or the
    /// job's end
    Top(TopArgs),
    /// Show why a job is slow, late or stuck: causes with their figures and remedies
    Why(RemoteJob),
    /// List the checkpoints of a job with a guarantee (`--set guarantee=… --set
    /// checkpoints.folder=FOLDER`)
    #[command(after_help = CHECKPOINTS_HELP)]
    Checkpoints(CheckpointsArgs),
    /// Restart a job that is in safe mode, once the cause is fixed
    #[command(after_help = RECOVER_HELP)]
    Recover(RecoverArgs),
    /// Write a savepoint of a job with a guarantee (all its state, in a separate folder), or
    /// inspect one
    #[command(after_help = SAVEPOINT_HELP)]
    Savepoint(SavepointArgs),
    /// Check whether a new program version can restore a job's state; shows for each state whether
    /// it is kept, migrated, dropped, added, or incompatible
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Run recorded micro-batches of one instance again, and check that the output is the same to
    /// the byte
    #[command(after_help = REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Show the replicas of an active-active job and their lag
    #[command(after_help = REPLICAS_HELP)]
    Replicas(ReplicasArgs),
    /// Create, list and revoke tokens for a cluster
    #[command(subcommand, after_help = TOKEN_HELP)]
    Token(TokenCommand),
    /// Show the latest actions on a cluster, and their callers
    Audit(AuditArgs),
    /// Start, stop and inspect clusters
    #[command(subcommand, after_help = CLUSTER_HELP)]
    Cluster(ClusterCommand),
    /// List, read and change the maps in a cluster's memory, which jobs write to
    #[command(subcommand, after_help = MAP_HELP)]
    Map(MapCommand),
    /// Inspect the cluster's metadata store
    #[command(subcommand, after_help = METASTORE_HELP)]
    Metastore(MetastoreCommand),
    /// Run a benchmark; prints a table on a terminal, else (or with --json) one JSON object per run
    #[cfg(feature = "bench")]
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Run a benchmark (only in a program built with the feature `bench`)
    #[cfg(not(feature = "bench"))]
    #[command(hide = true)]
    Bench {
        /// The benchmark and its options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        args: Vec<String>,
    },
    /// Run the NEXMark auction benchmark: generate events, compute queries over them
    #[command(subcommand)]
    Nexmark(NexmarkCommand),
    /// List all settings: their values, where each comes from, and their trade-offs
    Config(ConfigArgs),
    /// Print a shell completion script for ardea
    #[command(
        after_help = "Example: ardea completions bash > ~/.local/share/bash-completion/completions/ardea"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the version
    Version,
}

const RUN_HELP: &str = "\
`ardea examples` lists the jobs, `ardea run JOB --help` explains one. Words after the job's name are its arguments; options \
of ardea are recognized there too. While live tables show in the terminal, q acts like a first Ctrl-C.";

const PLAN_HELP: &str = "\
Examples:
  ardea plan wordcount book.txt
  ardea plan word-count.yaml --dry-run --set job.containers=2 --json
  ardea plan --cluster prod word-count

JOB is a job that comes with ardea (`ardea examples` lists them), or else a job of a cluster; with --cluster or --at it is \
always a job of a cluster. Words after the job's name are its arguments; options of ardea are recognized there too. With \
--dry-run the job is packed as for a cluster.";

const INSPECT_HELP: &str = "\
Examples:
  ardea inspect bids.jsonl
  ardea inspect flights.csv.gz --name flight --records 100_000
  ardea inspect export.txt --format tsv --json

The types are those of the first records. A field is optional if one of them lacks it or has null in it. A value of \
another type later in the file makes its record a bad one.";

const CHECKPOINTS_HELP: &str = "\
Examples:
  ardea checkpoints state/wordcount --check
  ardea checkpoints word-count --cluster prod

A name that is no local folder is a job of a cluster; with --cluster or --at every name is.";

const SAVEPOINT_HELP: &str = "\
Examples:
  ardea savepoint state/wordcount --to saved/before-v2
  ardea savepoint word-count --cluster prod --to /mnt/saved/before-v2
  ardea savepoint inspect saved/before-v2 --check
  ardea run wordcount --set guarantee=exactly-once --set checkpoints.folder=state/v2 --set recovery.from=saved/before-v2 book.txt

A name that is no local folder is a job of a cluster; with --cluster or --at every name is. A running job ends an epoch \
for the savepoint, writes it, and continues. For a job of a cluster, the host that leads it writes the savepoint, to a \
folder on that host.";

const DIFF_HELP: &str = "\
Examples:
  ardea diff saved/before-v2 ./wordcount-v2 book.txt
  ardea diff --cluster prod word-count ./wordcount-v2 book.txt
  ardea diff saved/before-v2 saved/after
  ardea diff --set recovery.drop=tops state/wordcount wordcount book.txt

OLD is a job of a cluster, the folder of a savepoint, or the folder of a job (checkpoints.folder). A name that is no local \
folder is a job of a cluster; with --cluster or --at every name is. NEW is such a folder, a job program, or the name of a \
job that comes with ardea, followed by the job's arguments. Exits with code 2 if a state can't be restored.";

const REPLAY_HELP: &str = "\
Examples:
  ardea run --set mode=micro-batch --set micro_batch.record=recording wordcount book.txt
  ardea replay wordcount --set micro_batch.record=recording --vertex words -- book.txt
  ardea replay wordcount --set micro_batch.record=recording --vertex words --micro-batch 17 --save words-17 -- book.txt

JOB is a job that comes with ardea, or a topology file; a job program has the same command. `ardea plan` names the steps \
that are not recorded, and the reasons. Exits with code 1 if the output differs: the step is not deterministic.";

/// The arguments of `ardea replay`.
#[derive(clap::Args, Debug)]
pub struct ReplayArgs {
    /// Name of the job, or a topology file
    #[arg(value_name = "JOB")]
    pub job: String,
    /// The options.
    #[command(flatten)]
    pub options: ReplayOptions,
    /// The job's own arguments
    #[arg(value_name = "ARGS", last = true)]
    pub args: Vec<String>,
}

const REPLICAS_HELP: &str = "\
Example:
  ardea replicas /mnt/out/results.txt

A dead replica is shown until another one takes its number. `behind` is its lag in event time behind the most \
advanced replica; `first` and `met` count the slices that it wrote to the file first, or found there, since its start.";

/// The arguments of `ardea replicas`.
#[derive(clap::Args, Debug)]
pub struct ReplicasArgs {
    /// The output file that the replicas share
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// The arguments of `ardea diff`.
#[derive(clap::Args, Debug)]
pub struct DiffArgs {
    /// A job of a cluster, or the folder of a savepoint or of a job
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
    /// Another folder of a savepoint or of a job, a job program, or the name of a job that comes
    /// with ardea
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

/// The arguments of `ardea config`.
#[derive(clap::Args, Debug)]
pub struct ConfigArgs {
    /// The cluster whose settings are listed, from the table [clusters.NAME] of ardea.toml
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
}

/// The arguments of `ardea components`.
#[derive(clap::Args, Debug)]
pub struct ComponentsArgs {
    /// The only component to show
    pub name: Option<String>,
}

/// The arguments of `ardea run`.
#[derive(clap::Args, Debug)]
pub struct RunArgs {
    /// Serve the job's web page; the default address is 127.0.0.1:7401, or another free port
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true,
        default_missing_value = "on")]
    pub ui: Option<String>,
    /// The job.
    #[command(flatten)]
    pub job: JobArgs,
}

/// The arguments of `ardea plan`.
#[derive(clap::Args, Debug)]
pub struct PlanArgs {
    /// Pack the job as for a cluster, without contacting one
    #[arg(long)]
    pub dry_run: bool,
    /// Show the measured traffic between the instances of a running job
    #[arg(long, conflicts_with = "dry_run")]
    pub traffic: bool,
    /// The cluster of the job.
    #[command(flatten)]
    pub place: ClusterArgs,
    /// The job.
    #[command(flatten)]
    pub job: JobArgs,
}

/// A job and its arguments.
#[derive(clap::Args, Debug)]
pub struct JobArgs {
    /// Number of cooperative threads (default: all cores)
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<u32>,
    /// Name of the job, then its arguments
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
    /// Returns the job's name and its arguments.
    pub fn split(&self) -> (&str, &[String]) {
        // The argument parser requires a name.
        self.job
            .split_first()
            .map_or(("", &[]), |(name, rest)| (name.as_str(), rest))
    }
}

/// The subcommands of `ardea nexmark`.
#[derive(Subcommand, Debug)]
pub enum NexmarkCommand {
    /// Write events as JSON lines; the same seed gives the same bytes
    Generate(GenerateArgs),
    /// Compute a query over a file of events; writes one JSON object per result
    Run(QueryArgs),
}

/// The arguments of `ardea inspect`.
#[derive(clap::Args, Debug)]
pub struct InspectArgs {
    /// The file; may be compressed
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Number of records to read; the schema of Parquet is in the file
    #[arg(long, value_name = "N", value_parser = at_least_one, default_value = "10000")]
    pub records: u64,
    /// Format of the file (default: by its name)
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<InspectFormat>,
    /// Name of the struct, class and table (default: that of the file)
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// The formats that `ardea inspect` reads.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub enum InspectFormat {
    /// A JSON object per line
    Json,
    /// Comma-separated values with a header
    Csv,
    /// Tab-separated values with a header
    Tsv,
    /// Parquet, in a program built with the feature `parquet`
    Parquet,
}

/// The arguments of `ardea nexmark generate`.
#[derive(clap::Args, Debug)]
pub struct GenerateArgs {
    /// Number of events; of every 50, 1 is a person, 3 are auctions, 46 are bids
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub events: u64,
    /// Seed of the generator
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Output file, `-` for standard output; compressed if its name ends in .gz or .zst
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// Maximum lateness of events, in event time, such as 5s
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0s")]
    pub out_of_order: Duration,
    /// Events per second of event time
    #[arg(long, value_name = "N", value_parser = at_least_one, default_value = "10000")]
    pub rate: u64,
}

/// The arguments of `ardea nexmark run`.
#[derive(clap::Args, Debug)]
pub struct QueryArgs {
    /// The query: q0 to q8, or q13
    #[arg(long, value_name = "QUERY")]
    pub query: String,
    /// File of events from `ardea nexmark generate`, `-` for standard input; may be compressed. For
    /// q1, q2, q5, q7 and q13 also a CSV file of bids; in columns also Parquet
    #[arg(long, short, value_name = "FILE")]
    pub input: PathBuf,
    /// Output file, `-` for standard output; compressed if its name ends in .gz or .zst
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// Length of windows (q5, q7, q8; default: 10s)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub window: Option<Duration>,
    /// Slide of windows (q5; default: 2s)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub slide: Option<Duration>,
    /// Number of cooperative threads (default: all cores)
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<u32>,
    /// Side input of q13: lines of `key,value`
    #[arg(long, value_name = "FILE.csv")]
    pub side: Option<PathBuf>,
    /// Maximum disorder of events; windows then close as early as possible, and not at the end of
    /// the file
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub out_of_order: Option<Duration>,
    /// Compute in Arrow columns: the default of a program built with the feature `columns`
    #[arg(long, conflicts_with = "rows")]
    pub columns: bool,
    /// Compute in rows; the results are the same
    #[arg(long)]
    pub rows: bool,
}

/// Parses a number of a container or an instance.
fn number(text: &str) -> Result<u32, String> {
    within(0..=u32::MAX, text)
}

/// Parses a count of at least one.
fn at_least_one(text: &str) -> Result<u64, String> {
    match parse_count(text).map_err(|error| error.to_string())? {
        0 => Err("must be at least 1".into()),
        number => Ok(number),
    }
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
        assert_eq!(run.job.job, ["wc", "--help", "--json"]);
    }

    #[test]
    fn counts_may_have_underscores() {
        assert_eq!(at_least_one("1_000_000"), Ok(1_000_000));
        assert!(at_least_one("many").is_err() && at_least_one("0").is_err());
    }
}
