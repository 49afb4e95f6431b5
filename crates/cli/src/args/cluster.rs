//! The commands for clusters.

use std::path::PathBuf;
use std::time::Duration;

use ardea::command_line::{
    ClusterArgs, SubmitOptions, UpgradeOptions, at_most_ten_a_second, within,
};
use ardea_config::parse_duration;
use ardea_rest::LogSource;
use clap::Subcommand;

use super::number;

/// A job of a cluster.
#[derive(clap::Args, Debug)]
pub struct RemoteJob {
    /// Name of the job
    pub job: String,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
}

/// The arguments of `ardea list`.
#[derive(clap::Args, Debug)]
pub struct ListArgs {
    /// Also list ended jobs; the cluster has records of the last hundred
    #[arg(long, short)]
    pub all: bool,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
}

pub(super) const SUBMIT_HELP: &str = "\
Examples:
  ardea submit word-count.yaml --set job.containers=2
  ardea submit ./my-job --cluster prod --name nightly -- --from yesterday
  ardea submit word-count.yaml --file book.txt --detach
  ardea submit sensors -- --rate 7000

A YAML file wires the components that come with ardea, or your program's own: see the guide's chapter on topologies.
`ardea examples` lists the jobs that come with ardea.
A job program contains its job (ardea::main): `ardea submit ./my-job` is `./my-job submit`.
`ardea submit job.py` runs a job in Python with the interpreter of the active virtual environment.";

/// The options for jobs in Python.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Jobs in Python")]
pub struct PythonArgs {
    /// Interpreter [default: that of the active virtual environment, or python3]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Pack the packages of a requirements file with the job
    #[arg(long, value_name = "FILE", conflicts_with = "with_environment")]
    pub requirements: Option<PathBuf>,
    /// Pack the packages of the interpreter's environment with the job
    #[arg(long)]
    pub with_environment: bool,
}

/// The arguments of `ardea submit`.
#[derive(clap::Args, Debug)]
pub struct SubmitArgs {
    /// A topology (.yaml), a job that comes with ardea, a job program, or a script of Python (.py)
    #[arg(value_name = "FILE")]
    pub what: PathBuf,
    /// The options.
    #[command(flatten)]
    pub options: SubmitOptions,
    /// The options for jobs in Python.
    #[command(flatten)]
    pub python: PythonArgs,
    /// Arguments of the program, after --
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,
}

/// The arguments of `ardea kill`.
#[derive(clap::Args, Debug)]
pub struct KillArgs {
    /// The job.
    #[command(flatten)]
    pub job: RemoteJob,
    /// Skip the confirmation prompt
    #[arg(long, short)]
    pub yes: bool,
    /// Return without waiting until the job is gone
    #[arg(long)]
    pub detach: bool,
}

/// The arguments of `ardea restart`.
#[derive(clap::Args, Debug)]
pub struct RestartArgs {
    /// Name of the job
    pub job: String,
    /// Number of the container; `ardea describe JOB` lists them
    #[arg(value_parser = number)]
    pub container: u32,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
}

pub(super) const UPGRADE_HELP: &str = "\
Examples:
  ardea diff word-count ./wordcount-v2 book.txt
  ardea upgrade word-count ./wordcount-v2 --set guarantee=exactly-once --set checkpoints.folder=/mnt/state -- book.txt
  ardea upgrade word-count ./wordcount-v2 --within 5m --detach

A program that can't restore the job's state is refused before anything stops. Then the job ends a last epoch and stops, and \
the new program starts from its checkpoint. If the new program commits no epoch in time, fails repeatedly, or can't be run, \
the previous program is restarted with the same state. The cluster performs the upgrade by itself: this command may end at any \
time, and `ardea describe JOB` shows the progress.";

/// The arguments of `ardea upgrade`.
#[derive(clap::Args, Debug)]
pub struct UpgradeArgs {
    /// Name of the job
    pub job: String,
    /// The new program: a job program, a script of Python, or a job that comes with ardea.
    /// Topologies have no state, and can't be upgraded to
    #[arg(value_name = "FILE")]
    pub what: PathBuf,
    /// The options.
    #[command(flatten)]
    pub options: UpgradeOptions,
    /// The options for jobs in Python.
    #[command(flatten)]
    pub python: PythonArgs,
    /// Arguments of the program, after --
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,
}

pub(super) const RESCALE_HELP: &str = "\
Examples:
  ardea rescale word-count --parallelism counts=8 --parallelism words=2
  ardea rescale word-count --workers 3

Neither the job nor its remaining instances are stopped. With --parallelism, vertices get other numbers of instances. With \
--workers, the instances are spread over another number of containers, with one worker each; the fewest possible instances \
move. If the containers find no room for half a minute, or the previous numbers are requested meanwhile, the change is rolled \
back.";

/// The arguments of `ardea rescale`.
#[derive(clap::Args, Debug)]
pub struct RescaleArgs {
    /// Name of the job
    pub job: String,
    /// New parallelism of each vertex, as with --parallelism
    #[arg(value_name = "VERTEX=N", value_parser = vertex_count, conflicts_with = "workers")]
    pub parallelism: Vec<(String, u32)>,
    /// New parallelism of a vertex; may be repeated
    #[arg(long = "parallelism", value_name = "VERTEX=N", value_parser = vertex_count,
        conflicts_with = "workers")]
    pub named: Vec<(String, u32)>,
    /// Number of containers, with one worker each, to spread the instances over; at most the number
    /// of instances
    #[arg(long, visible_alias = "containers", value_name = "N", value_parser = worker_count,
        required_unless_present_any = ["parallelism", "named"])]
    pub workers: Option<u32>,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
    /// Return without waiting until the job has changed
    #[arg(long)]
    pub detach: bool,
}

fn worker_count(text: &str) -> Result<u32, String> {
    within(1..=u32::MAX, text)
}

pub(super) const RECOVER_HELP: &str = "\
Examples:
  ardea recover word-count
  ardea recover word-count --from 41

A job enters safe mode if it fails repeatedly without committing an epoch, or if the checkpoint to restore can't be read; \
`ardea describe JOB` shows the reason, `ardea checkpoints JOB` the available checkpoints.";

/// The arguments of `ardea recover`.
#[derive(clap::Args, Debug)]
pub struct RecoverArgs {
    /// The job.
    #[command(flatten)]
    pub job: RemoteJob,
    /// Restore the checkpoint of this epoch instead of the newest committed one; results published
    /// since are published again
    #[arg(long, value_name = "EPOCH", value_parser = epoch)]
    pub from: Option<u64>,
    /// Restart without state: all input is read again, and all results are published again
    #[arg(long, conflicts_with = "from")]
    pub from_nothing: bool,
    /// Return without waiting until the job runs
    #[arg(long)]
    pub detach: bool,
}

fn epoch(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        "write the number of an epoch, such as 41; `ardea checkpoints JOB` lists them".to_string()
    })
}

pub(super) const LOGS_HELP: &str = "\
Examples:
  ardea logs word-count --container 2 --tail 1000
  ardea logs word-count --follow --source stderr
  ardea logs word-count --submission 5f3a

The output of a job that has ended is kept for a day.";

/// The arguments of `ardea logs`.
#[derive(clap::Args, Debug)]
pub struct LogsArgs {
    /// The job.
    #[command(flatten)]
    pub job: RemoteJob,
    /// Submission of the job, in hexadecimal digits as shown by `ardea list --all` (default: the
    /// current one, else the last)
    #[arg(long, value_name = "N", value_parser = submission)]
    pub submission: Option<u64>,
    /// Only print the output of this container
    #[arg(long, short, value_name = "N", value_parser = number)]
    pub container: Option<u32>,
    /// Only print this stream: stdout or stderr
    #[arg(long, value_name = "SOURCE", value_parser = log_source)]
    pub source: Option<LogSource>,
    /// Number of lines to print from the end of each file
    #[arg(long, short = 'n', value_name = "N", default_value_t = ardea_rest::DEFAULT_TAIL_LINES,
        value_parser = tail)]
    pub tail: u32,
    /// Keep printing new output until Ctrl-C or the job's end
    #[arg(long, short)]
    pub follow: bool,
}

pub(super) const METRICS_HELP: &str = "\
Examples:
  ardea metrics word-count --vertex counts
  ardea metrics word-count --name ardea_records_in_total --since 10m --json";

/// The arguments of `ardea metrics`.
#[derive(clap::Args, Debug)]
pub struct MetricsArgs {
    /// The job.
    #[command(flatten)]
    pub job: RemoteJob,
    /// Only show metrics of this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Only show metrics of this vertex
    #[arg(long, value_name = "VERTEX")]
    pub vertex: Option<String>,
    /// Only show metrics of the instance with this index
    #[arg(long, value_name = "N", value_parser = number)]
    pub instance: Option<u32>,
    /// Only show metrics of this container
    #[arg(long, short, value_name = "N", value_parser = number)]
    pub container: Option<u32>,
    /// Show the values over this time span until now, and not only the latest; needs --name
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "name")]
    pub since: Option<Duration>,
}

/// The arguments of `ardea top`.
#[derive(clap::Args, Debug)]
pub struct TopArgs {
    /// The job.
    #[command(flatten)]
    pub job: RemoteJob,
    /// Refresh interval, at least 100ms
    #[arg(long, value_name = "DURATION", value_parser = at_most_ten_a_second, default_value = "1s")]
    pub every: Duration,
    /// Print once and exit
    #[arg(long)]
    pub once: bool,
}

pub(super) const CLUSTER_HELP: &str = "\
Examples:
  ardea cluster start --workers 4
  ardea cluster status
  ardea cluster drain host-2
  ardea cluster stop";

/// The subcommands of `ardea cluster`.
#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Start hosts of a session cluster on this machine, which many jobs share
    Start(ClusterStartArgs),
    /// Stop the hosts of a cluster on this machine; its jobs keep running unless --kill-jobs is
    /// given
    Stop(ClusterStopArgs),
    /// Show a cluster: its hosts, their containers, and its jobs
    Status(ClusterArgs),
    /// Move all containers of a host to others and place no more on it; waits until the host is
    /// empty
    #[command(after_help = DRAIN_HELP)]
    Drain(DrainArgs),
    /// Allow containers on a drained host again; moved containers do not return
    Undrain(UndrainArgs),
}

const DRAIN_HELP: &str = "\
Examples:
  ardea cluster drain host-2
  ardea cluster drain host-2 --detach
  ardea cluster undrain host-2

Jobs keep running: containers on other hosts replace those of the host, as with `ardea rescale`; for a job with a guarantee, \
at the end of an epoch. If this command is interrupted, the cluster goes on draining. The host stays drained after a \
restart. If the other hosts have no room, the command reports it and nothing is changed. Only jobs of the scheduler `hosts` \
are moved.";

/// The arguments of `ardea cluster drain`.
#[derive(clap::Args, Debug)]
pub struct DrainArgs {
    /// Name of the host; `ardea cluster status` lists them
    pub host: String,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
    /// Return without waiting until the host is empty
    #[arg(long)]
    pub detach: bool,
}

/// The arguments of `ardea cluster undrain`.
#[derive(clap::Args, Debug)]
pub struct UndrainArgs {
    /// Name of the host
    pub host: String,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
}

pub(super) const METASTORE_HELP: &str = "\
Examples:
  ardea metastore dump
  ardea metastore dump --cluster prod --below /jobs/word-count --whole
  ardea metastore remove /jobs/word-count/definition

These commands access the metadata store directly, so they work while no host is up.";

/// The subcommands of `ardea metastore`.
#[derive(Subcommand, Debug)]
pub enum MetastoreCommand {
    /// Print the contents of a cluster's metadata store as a tree: definitions, plans, leases,
    /// containers and hosts
    Dump(MetastoreDumpArgs),
    /// Remove a damaged node reported by `ardea metastore dump`; undamaged nodes are refused
    #[command(after_help = STATE_REMOVE_HELP)]
    Remove(MetastoreRemoveArgs),
}

const STATE_REMOVE_HELP: &str = "\
Removed data is lost: without its definition a job is gone and its containers end, and it has to be submitted again.
Leases and status reports are written again by the job's leader.";

/// The arguments of `ardea metastore dump`.
#[derive(clap::Args, Debug)]
pub struct MetastoreDumpArgs {
    /// The cluster; its settings are in the table [clusters.NAME] of ardea.toml
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Only print this node and its descendants
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub below: String,
    /// Print long values completely, and not only their beginning
    #[arg(long)]
    pub whole: bool,
}

/// The arguments of `ardea metastore remove`.
#[derive(clap::Args, Debug)]
pub struct MetastoreRemoveArgs {
    /// Path of the node, such as /jobs/word-count/definition
    #[arg(value_name = "PATH")]
    pub path: String,
    /// The cluster; its settings are in the table [clusters.NAME] of ardea.toml
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
}

/// The arguments of `ardea cluster start`.
#[derive(clap::Args, Debug)]
pub struct ClusterStartArgs {
    /// The cluster; its settings are in the table [clusters.NAME] of ardea.toml
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Number of hosts that should run on this machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = hosts)]
    pub workers: u32,
    /// Run a host in the foreground until Ctrl-C
    #[arg(long, conflicts_with = "workers")]
    pub foreground: bool,
    /// With --foreground: name of the host, unique in the cluster (default: the machine's name);
    /// background hosts are called host-1, host-2 …
    #[arg(long, value_name = "NAME", requires = "foreground")]
    pub name: Option<String>,
    /// With --foreground: attribute of the host for schedulers, such as rack=7; may be repeated
    #[arg(long = "attribute", value_name = "NAME=VALUE", requires = "foreground", value_parser = attribute)]
    pub attributes: Vec<(String, String)>,
}

/// The arguments of `ardea cluster stop`.
#[derive(clap::Args, Debug)]
pub struct ClusterStopArgs {
    /// The cluster
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Kill the cluster's jobs first
    #[arg(long)]
    pub kill_jobs: bool,
}

/// Parses a number of hosts on this machine.
fn hosts(text: &str) -> Result<u32, String> {
    within(1..=64, text)
}

/// Parses a number of log lines.
fn tail(text: &str) -> Result<u32, String> {
    within(0..=ardea_rest::MAX_TAIL_LINES, text)
}

/// Parses NAME=VALUE.
fn attribute(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("write NAME=VALUE, such as rack=7")?;
    Ok((name.to_string(), value.to_string()))
}

/// Parses VERTEX=N: a vertex and its number of instances.
fn vertex_count(text: &str) -> Result<(String, u32), String> {
    // Splits at the last `=`, since a vertex's name may contain one.
    let (vertex, count) = text
        .rsplit_once('=')
        .filter(|(vertex, _)| !vertex.is_empty())
        .ok_or("write VERTEX=N, such as counts=8")?;
    match count.parse() {
        Ok(0) => Err("a vertex has at least one instance".into()),
        Ok(count) => Ok((vertex.to_string(), count)),
        Err(_) => Err(format!(
            "{count:?} is not a number of instances: write VERTEX=N, such as counts=8"
        )),
    }
}

fn submission(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| {
        "a submission is a number in hexadecimal digits; `ardea list --all` shows them".into()
    })
}

fn log_source(text: &str) -> Result<LogSource, String> {
    [LogSource::Stdout, LogSource::Stderr]
        .into_iter()
        .find(|source| source.as_str() == text)
        .ok_or_else(|| "write stdout or stderr".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_out_of_range_is_told_the_range() {
        assert_eq!(hosts("64"), Ok(64));
        assert_eq!(tail("0"), Ok(0));
        for text in ["0", "65", "x", ""] {
            let told = Err("write a whole number from 1 to 64".to_string());
            assert_eq!(hosts(text), told, "{text}");
        }
    }

    #[test]
    fn a_vertex_may_have_any_name() {
        assert_eq!(vertex_count("counts=8"), Ok(("counts".into(), 8)));
        assert_eq!(vertex_count("a=b=2"), Ok(("a=b".into(), 2)));
        for text in ["counts", "=3", "counts=0", "counts=-1", "counts=many", ""] {
            assert!(vertex_count(text).is_err(), "{text}");
        }
    }
}
