//! The command line: the commands that job programs share with the program `ardea`.
//!
//! A command's options, their help and its implementation are defined here once. [`main`](fn@main)
//! is the command line of a job program, whose commands are about its own job; `ardea` adds the
//! name of a job to the same options, and has further commands.
//!
//! * `options`: options and their parsers; [`Context`]: the options of every command, with the
//!   settings that they select;
//! * `program`: the commands of a job program;
//! * `submit`: [`plan`], [`submit`](fn@submit) and [`upgrade`](fn@upgrade) of a packaged job;
//! * `checkpoints`, `savepoint`, `diff`: the stored state of a job, in a folder or on a cluster;
//! * [`ClusterConnection`]: a client of a cluster; [`OfflineCluster`]: the records of a cluster
//!   whose hosts are down;
//! * `usage`: errors of the command line, and the help on exit codes.
//!
//! # Invariants
//!
//! * Standard output carries results and JSON only; everything else goes to standard error.
//! * An option has the same meaning, help and errors in every program.

mod checkpoints;
mod cluster_connection;
mod context;
mod diff;
mod offline_jobs;
mod options;
mod program;
mod savepoint;
mod submit;
mod usage;

pub use checkpoints::checkpoints;
pub use cluster_connection::{ClusterConnection, is_of_a_cluster};
pub use context::{Context, check_threads};
pub use diff::{compare, stored_states};
pub use offline_jobs::OfflineCluster;
pub use options::{
    CheckpointsArgs, ClusterArgs, GlobalOptions, SavepointArgs, SavepointCommand, SubmitOptions,
    UpgradeOptions, at_most_ten_a_second, thread_count, within,
};
pub use program::{main, main_with};
pub use savepoint::savepoint;
pub use submit::{plan, submit, upgrade};
pub use usage::{EXIT_CODES, exit, report_usage, run_as_process_of_cluster};
