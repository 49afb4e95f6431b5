//! The command line: the commands that job programs share with the program `ardea`.
//!
//! A command's options, their help and its implementation are defined here once. With the feature
//! `cluster`, `main` is the command line of a job program, whose commands are about its own job;
//! `ardea` adds the name of a job to the same options, and has further commands.
//!
//! * `options`: options and their parsers; [`Context`]: the options of every command, with the
//!   settings that they select;
//! * `usage`: errors of the command line, and the help on exit codes.
//!
//! With the feature `cluster`:
//!
//! * `cluster_options`, `cluster_context`: options and settings of clusters; `cluster_process`: the
//!   program as a process of a cluster;
//! * `program`: the commands of a job program;
//! * `replay`: recorded micro-batches, run again;
//! * `submit`: `plan`, `submit` and `upgrade` of a packaged job;
//! * `checkpoints`, `savepoint`, `diff`: the stored state of a job, in a folder or on a cluster;
//! * `ClusterConnection`: a client of a cluster; `OfflineCluster`: the records of a cluster whose
//!   hosts are down.
//!
//! # Invariants
//!
//! * Standard output carries results and JSON only; everything else goes to standard error.
//! * An option has the same meaning, help and errors in every program.

mod context;
mod options;
mod usage;

#[cfg(feature = "cluster")]
mod checkpoints;
#[cfg(feature = "cluster")]
mod cluster_connection;
#[cfg(feature = "cluster")]
mod cluster_context;
#[cfg(feature = "cluster")]
mod cluster_options;
#[cfg(feature = "cluster")]
mod cluster_process;
#[cfg(feature = "cluster")]
mod diff;
#[cfg(feature = "cluster")]
mod offline_jobs;
#[cfg(feature = "cluster")]
mod program;
#[cfg(feature = "cluster")]
mod replay;
#[cfg(feature = "cluster")]
mod savepoint;
#[cfg(feature = "cluster")]
mod submit;

pub use context::{Context, check_threads};
pub use options::{GlobalOptions, at_most_ten_a_second, thread_count, within};
pub use usage::{EXIT_CODES, exit, exit_code, report_usage, report_usage_code, usage_error};

#[cfg(feature = "cluster")]
pub use {
    checkpoints::checkpoints,
    cluster_connection::{ClusterConnection, is_of_a_cluster},
    cluster_options::{
        CheckpointsArgs, ClusterArgs, SavepointArgs, SavepointCommand, SubmitOptions,
        UpgradeOptions,
    },
    cluster_process::run_as_process_of_cluster,
    diff::{compare, stored_states},
    offline_jobs::OfflineCluster,
    program::{ProgramFile, job_arguments, main, main_of, main_with},
    replay::{ReplayOptions, replay},
    savepoint::savepoint,
    submit::{plan, submit, upgrade},
};
