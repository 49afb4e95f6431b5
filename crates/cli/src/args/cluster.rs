//! The commands that talk to a cluster.

use std::path::PathBuf;
use std::time::Duration;

use ardea_rest::LogSource;
use clap::Subcommand;

use super::{at_most_ten_a_second, duration, number, within};

/// Which cluster.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Where {
    /// Which cluster; the table [clusters.NAME] of ardea.toml has its settings
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Ask this interface: http://HOST:PORT; found in the cluster's state unless told
    #[arg(long, value_name = "URL")]
    pub at: Option<String>,
}

/// One job of a cluster.
#[derive(clap::Args, Debug)]
pub struct RemoteJob {
    /// The job's name
    pub job: String,
    /// Where it is.
    #[command(flatten)]
    pub place: Where,
}

/// `ardea list`.
#[derive(clap::Args, Debug)]
pub struct ListArgs {
    /// Those that are gone as well, as far as they are remembered
    #[arg(long, short)]
    pub all: bool,
    /// Where they are.
    #[command(flatten)]
    pub place: Where,
}

pub(super) const SUBMIT_HELP: &str = "\
Examples:
  ardea submit word-count.yaml --set job.containers=2
  ardea submit ./my-job --cluster prod --name nightly -- --from yesterday
  ardea submit word-count.yaml --file book.txt --detach
  ardea submit sensors -- --rate 7000

A YAML file wires the components that come with ardea, or your program's own: see the guide's chapter on topologies.
`ardea jobs` lists the jobs that come with ardea.
A program is a job of its own (ardea::main): `ardea submit ./my-job` is `./my-job submit`.";

/// `ardea submit`.
#[derive(clap::Args, Debug)]
pub struct SubmitArgs {
    /// A topology (.yaml), a job that comes with ardea, or a program that is a job
    #[arg(value_name = "FILE")]
    pub what: PathBuf,
    /// Where it goes.
    #[command(flatten)]
    pub place: Where,
    /// Under this name, and not the job's own
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A file or folder that goes along; may be given several times
    #[arg(long = "file", value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// Don't wait until it runs
    #[arg(long)]
    pub detach: bool,
    /// The program's own arguments, behind --
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,
}

/// `ardea kill`.
#[derive(clap::Args, Debug)]
pub struct KillArgs {
    /// Which.
    #[command(flatten)]
    pub job: RemoteJob,
    /// Don't ask
    #[arg(long, short)]
    pub yes: bool,
    /// Don't wait until it is gone
    #[arg(long)]
    pub detach: bool,
}

/// `ardea restart`.
#[derive(clap::Args, Debug)]
pub struct RestartArgs {
    /// The job's name
    pub job: String,
    /// The number of the container; `ardea describe JOB` lists them
    #[arg(value_parser = number)]
    pub container: u32,
    /// Where it is.
    #[command(flatten)]
    pub place: Where,
}

pub(super) const UPDATE_HELP: &str = "\
Examples:
  ardea update word-count counts=8 words=2
  ardea update word-count --parallelism counts=8 --parallelism words=2

Instances that stay are not stopped, and neither is the job. If its containers find no room for half a minute, or the numbers that it had are asked \
for meanwhile, the job goes back to what it was.";

/// `ardea update`.
#[derive(clap::Args, Debug)]
pub struct UpdateArgs {
    /// The job's name
    pub job: String,
    /// How many instances each of these vertices gets
    #[arg(required_unless_present = "named", value_name = "VERTEX=N", value_parser = vertex_count)]
    pub parallelism: Vec<(String, u32)>,
    /// The same; may be given several times
    #[arg(long = "parallelism", value_name = "VERTEX=N", value_parser = vertex_count)]
    pub named: Vec<(String, u32)>,
    /// Where it is.
    #[command(flatten)]
    pub place: Where,
    /// Don't wait until they run
    #[arg(long)]
    pub detach: bool,
}

pub(super) const UPGRADE_HELP: &str = "\
Examples:
  ardea diff word-count ./wordcount-v2 book.txt
  ardea upgrade word-count ./wordcount-v2 --set guarantee=exactly-once --set snapshots.folder=/mnt/state -- book.txt
  ardea upgrade word-count ./wordcount-v2 --within 5m --detach

What can't go on from the state of the job is refused before anything stops. Then the job ends a last epoch and stops, and the new program begins \
from there; if that has committed no epoch in time, fails again and again, or can't be run, the program before comes back, with the same state. \
The cluster does it by itself: this command may end at any time, and `ardea describe JOB` tells how far it is.";

/// `ardea upgrade`.
#[derive(clap::Args, Debug)]
pub struct UpgradeArgs {
    /// The job's name
    pub job: String,
    /// The new program: one that is a job, or a job that comes with ardea. Topologies keep no state, and can't follow a job
    #[arg(value_name = "FILE")]
    pub what: PathBuf,
    /// Where the job is.
    #[command(flatten)]
    pub place: Where,
    /// A file or folder that goes along; may be given several times
    #[arg(long = "file", value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// How long the new program may take to commit its first epoch; a minute unless told
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub within: Option<Duration>,
    /// Don't wait until it is done
    #[arg(long)]
    pub detach: bool,
    /// The program's own arguments, behind --
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,
}

pub(super) const RESCALE_HELP: &str = "\
Example: ardea rescale word-count --workers 3

As few instances move as that takes; vertices keep their numbers of instances, which `ardea update` changes. A container runs one worker. \
If they find no room for half a minute, or the number that there was is asked for meanwhile, the job goes back to what it was.";

/// `ardea rescale`.
#[derive(clap::Args, Debug)]
pub struct RescaleArgs {
    /// The job's name
    pub job: String,
    /// How many containers, with a worker each, all instances are spread over; no more than there are instances
    #[arg(long, visible_alias = "containers", value_name = "N", value_parser = worker_count)]
    pub workers: u32,
    /// Where it is.
    #[command(flatten)]
    pub place: Where,
    /// Don't wait until all run where they are to
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

A job goes to safe mode when it has failed again and again without an epoch being committed, or when the snapshot that it should go back \
to can't be read; `ardea describe JOB` has the reason, `ardea snapshots JOB` what there is to go back to.";

/// `ardea recover`.
#[derive(clap::Args, Debug)]
pub struct RecoverArgs {
    /// Which.
    #[command(flatten)]
    pub job: RemoteJob,
    /// From the snapshot of this epoch, and not the newest committed one; what was published since is published again
    #[arg(long, value_name = "EPOCH", value_parser = epoch)]
    pub from: Option<u64>,
    /// With nothing: all input is read again, and what was published is published again
    #[arg(long, conflicts_with = "from")]
    pub from_nothing: bool,
    /// Don't wait until it runs
    #[arg(long)]
    pub detach: bool,
}

fn epoch(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "an epoch is a whole number".to_string())
}

pub(super) const LOGS_HELP: &str = "\
Examples:
  ardea logs word-count --container 2 --tail 1000
  ardea logs word-count --follow --source stderr
  ardea logs word-count --submission 5f3a

Of a job that has ended: what it wrote, as long as that is kept, which is a day.";

/// `ardea logs`.
#[derive(clap::Args, Debug)]
pub struct LogsArgs {
    /// Which.
    #[command(flatten)]
    pub job: RemoteJob,
    /// Of this submission of the name, in hexadecimal digits, as `ardea list --all` shows it; unless told, of the job that is there, else of
    /// the last one
    #[arg(long, value_name = "N", value_parser = submission)]
    pub submission: Option<u64>,
    /// Of this container only
    #[arg(long, short, value_name = "N", value_parser = number)]
    pub container: Option<u32>,
    /// Only what was written there: stdout or stderr
    #[arg(long, value_name = "SOURCE", value_parser = log_source)]
    pub source: Option<LogSource>,
    /// So many of the last lines of each file
    #[arg(long, short = 'n', value_name = "N", default_value_t = ardea_rest::DEFAULT_TAIL_LINES,
        value_parser = tail)]
    pub tail: u32,
    /// Go on with what is written from now on, until Ctrl-C or the job's end
    #[arg(long, short)]
    pub follow: bool,
}

pub(super) const METRICS_HELP: &str = "\
Examples:
  ardea metrics word-count --vertex counts
  ardea metrics word-count --name ardea_records_in_total --since 10m --json";

/// `ardea metrics`.
#[derive(clap::Args, Debug)]
pub struct MetricsArgs {
    /// Which.
    #[command(flatten)]
    pub job: RemoteJob,
    /// Only series of this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Only of this vertex
    #[arg(long, value_name = "VERTEX")]
    pub vertex: Option<String>,
    /// Only of the instance with this index
    #[arg(long, value_name = "N", value_parser = number)]
    pub instance: Option<u32>,
    /// Only of this container
    #[arg(long, short, value_name = "N", value_parser = number)]
    pub container: Option<u32>,
    /// Not the latest values, but all of so long ago until now; needs --name
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "name")]
    pub since: Option<Duration>,
}

/// `ardea top`.
#[derive(clap::Args, Debug)]
pub struct TopArgs {
    /// Which.
    #[command(flatten)]
    pub job: RemoteJob,
    /// How often to look again, at most ten times a second
    #[arg(long, value_name = "DURATION", value_parser = at_most_ten_a_second, default_value = "1s")]
    pub every: Duration,
    /// Print it once
    #[arg(long)]
    pub once: bool,
}

pub(super) const CLUSTER_HELP: &str = "\
Examples:
  ardea cluster start --workers 4
  ardea cluster status
  ardea cluster drain host-2
  ardea cluster stop";

/// `ardea cluster …`.
#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Start hosts of a cluster on this machine: a session cluster, which many jobs share
    Start(ClusterStartArgs),
    /// Stop the hosts of a cluster on this machine; its jobs go on until they are killed, unless told otherwise
    Stop(ClusterStopArgs),
    /// Show a cluster: its hosts, what runs on each, and its jobs
    Status(Where),
    /// Have all containers of a host go to others, and none be placed there any more; waits until it is empty
    #[command(after_help = DRAIN_HELP)]
    Drain(DrainArgs),
    /// Take it back that a host is drained; what has gone elsewhere stays there
    Undrain(UndrainArgs),
}

const DRAIN_HELP: &str = "\
Examples:
  ardea cluster drain host-2
  ardea cluster drain host-2 --detach
  ardea cluster undrain host-2

Jobs go on: other containers take the place of those of the host, as with `ardea rescale`; of a job with a guarantee at the end of an epoch. \
The cluster does it by itself: this command may end at any time. The host stays drained when it is stopped and started again. \
If the others have no room, that is told and nothing is changed. It is for jobs of the scheduler hosts.";

/// `ardea cluster drain`.
#[derive(clap::Args, Debug)]
pub struct DrainArgs {
    /// The host's name; `ardea cluster status` lists them
    pub host: String,
    /// Where it is.
    #[command(flatten)]
    pub place: Where,
    /// Don't wait until it is empty
    #[arg(long)]
    pub detach: bool,
}

/// `ardea cluster undrain`.
#[derive(clap::Args, Debug)]
pub struct UndrainArgs {
    /// The host's name
    pub host: String,
    /// Where it is.
    #[command(flatten)]
    pub place: Where,
}

pub(super) const STATE_HELP: &str = "\
Examples:
  ardea state dump
  ardea state dump --cluster prod --below /jobs/word-count --whole
  ardea state remove /jobs/word-count/definition

They ask the state manager itself, so that they work while no host is up.";

/// `ardea state …`.
#[derive(Subcommand, Debug)]
pub enum StateCommand {
    /// Print what the state manager of a cluster holds, as a tree: definitions, plans, leases, containers and hosts; changes nothing
    Dump(StateDumpArgs),
    /// Remove a node that is damaged, which `ardea state dump` names; what is whole is left alone
    #[command(after_help = STATE_REMOVE_HELP)]
    Remove(StateRemoveArgs),
}

const STATE_REMOVE_HELP: &str = "\
What is removed is lost: with its definition a job is gone, and its containers end, so it is submitted again.
Leases and what masters write for readers are written anew by whoever leads the job.";

/// `ardea state dump`.
#[derive(clap::Args, Debug)]
pub struct StateDumpArgs {
    /// Which cluster; the table [clusters.NAME] of ardea.toml has its settings
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Only what is there, and below it
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub below: String,
    /// Print long values in whole, and not only how they begin
    #[arg(long)]
    pub whole: bool,
}

/// `ardea state remove`.
#[derive(clap::Args, Debug)]
pub struct StateRemoveArgs {
    /// Which node, such as /jobs/word-count/definition
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Which cluster; the table [clusters.NAME] of ardea.toml has its settings
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
}

/// `ardea cluster start`.
#[derive(clap::Args, Debug)]
pub struct ClusterStartArgs {
    /// Which cluster; the table [clusters.NAME] of ardea.toml has its settings
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// How many hosts to have on this machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = hosts)]
    pub workers: u32,
    /// Be a host of the cluster, in the foreground, until Ctrl-C
    #[arg(long, conflicts_with = "workers")]
    pub foreground: bool,
    /// With --foreground: the name of the host, unique in the cluster; that of the machine unless told. In the background hosts are called
    /// host-1, host-2 …
    #[arg(long, value_name = "NAME", requires = "foreground")]
    pub name: Option<String>,
    /// With --foreground: what schedulers may want to know of the host, such as rack=7
    #[arg(long = "attribute", value_name = "NAME=VALUE", requires = "foreground", value_parser = attribute)]
    pub attributes: Vec<(String, String)>,
}

/// `ardea cluster stop`.
#[derive(clap::Args, Debug)]
pub struct ClusterStopArgs {
    /// Which cluster
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Kill its jobs first
    #[arg(long)]
    pub kill_jobs: bool,
}

/// How many hosts there may be on a machine.
fn hosts(text: &str) -> Result<u32, String> {
    within(1..=64, text)
}

/// How many lines may be asked for.
fn tail(text: &str) -> Result<u32, String> {
    within(0..=ardea_rest::MOST_TAIL_LINES, text)
}

/// A name and a value.
fn attribute(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("write NAME=VALUE, such as rack=7")?;
    Ok((name.to_string(), value.to_string()))
}

/// A vertex and its number of instances.
fn vertex_count(text: &str) -> Result<(String, u32), String> {
    // From the right: a vertex may have a `=` in its name.
    let (vertex, count) = text
        .rsplit_once('=')
        .filter(|(vertex, _)| !vertex.is_empty())
        .ok_or("write VERTEX=N, such as counts=8")?;
    match count.parse() {
        Ok(0) => Err("a vertex has at least one instance".into()),
        Ok(count) => Ok((vertex.to_string(), count)),
        Err(_) => Err(format!("{count:?} is no number of instances")),
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
