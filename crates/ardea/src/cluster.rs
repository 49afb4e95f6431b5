//! The host processes of a cluster: started by hand, by `ardea cluster start`, or for one job.
//!
//! A host runs the same program as the process that started it. [`host_process`] runs a host;
//! [`Launcher`] starts and stops hosts on this machine, which outlive the launching process;
//! [`Modules`] are the site-specific plugins that hosts load.
//!
//! # Clusters for one job
//!
//! If no host is up, submitting a job starts two hosts for it: a leader and a standby. Each host
//! restarts the other if it is missing, and both exit when the job is gone. A cluster with general
//! hosts runs many jobs.

mod host_process;
mod host_start;
mod launcher;
mod modules;
mod old_logs;
mod packages;
mod program_runner;
mod run_files;
mod slurm;

pub use host_process::{be_host, host_process};
pub use host_start::{HOST_START_VARIABLE, HostStart, as_host};
pub use launcher::{Launcher, RunningHost, set_host_command};
pub use modules::Modules;
pub(crate) use packages::store_options;
