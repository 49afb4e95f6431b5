//! The processes of a cluster: hosts, started by hand, by `ardea cluster start`, or for one job.
//!
//! A host is a process of the same program as whatever started it. [`host_process`] is what such a process does; [`Launcher`] starts
//! and stops hosts of this machine, which outlive it; [`Modules`] are the parts of a site's own that they bring along.
//!
//! # Clusters for one job
//!
//! Where no host is up, submitting starts two for the job: one leads, the other stands by. Each sees to it that there are two,
//! and both end when the job is gone. A cluster with hosts of its own runs many jobs.

mod host_process;
mod host_start;
mod launcher;
mod modules;
mod old_logs;
mod packages;
mod run_files;
mod slurm;

pub(crate) use host_process::be_host;
pub use host_process::host_process;
pub use host_start::{HOST_START_VARIABLE, HostStart, as_host};
pub use launcher::{Launcher, Started};
pub use modules::Modules;
pub(crate) use packages::store_options;
