//! Options of commands for clusters and for the stored state of jobs.

use std::path::PathBuf;
use std::time::Duration;

use ardea_config::parse_duration;
use clap::Subcommand;

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
