//! Schedulers: they start, watch and stop the containers of jobs.
//!
//! The packing says which containers a job has; a scheduler gets them somewhere ("Twitter Heron: Towards Extensible
//! Streaming Engines", section IV-B). Its interface is [`Scheduler`], made for one job by a [`SchedulerKind`]'s
//! `initialize`; a job chooses a kind by its name among [`Schedulers`].
//!
//! # Main types
//!
//! * [`SchedulerKind`], [`Scheduler`]: the interface, which an implementation of one's own implements.
//! * [`LaunchPlan`]: the job that containers are started for.
//! * [`ContainerEvent`], [`ContainerEvents`]: which containers have started and ended, and how.
//! * [`Schedulers`], [`JobScheduler`]: kinds by name, and what a job's master holds of one.
//! * [`LogRequest`], [`LogPiece`]: what a container has written.
//!
//! # Invariants
//!
//! * **Calls are made by level.** Each comes with an [`Order`](ardea_control::Order) and may be repeated. What was carried
//!   out is not done twice, and what an older master says is not done.
//! * **Containers outlive their scheduler.** Dropping one, or the death of its process, stops none of them; one that is made
//!   anew for the same job finds them all.
//! * **Each start of a container has an incarnation greater than all before it.**
//! * **After `on_kill` has returned no process of the job is left that can be reached.**
//!
//! # Example: a job by a scheduler that is chosen by name
//!
//! ```
//! use ardea_scheduler::Schedulers;
//!
//! let schedulers = Schedulers::none();
//! let error = schedulers.get("slurm").unwrap_err();
//! assert_eq!(error.code().as_str(), "ARD-102");
//! ```
#![forbid(unsafe_code)]

mod event;
mod launch;
mod logs;

mod interface;
mod job_scheduler;
mod schedulers;

mod programs;
mod runner;

mod hosts;
mod local;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use event::{
    ContainerEvent, ContainerEvents, Ending, EventFeed, RunningContainer, container_events,
};
pub use hosts::{HostIdentity, HostRecord, Hosts, RunnerServer};
pub use interface::{Pending, Scheduler, SchedulerKind};
pub use job_scheduler::JobScheduler;
pub use launch::LaunchPlan;
pub use local::Local;
pub use logs::{LogFile, LogPiece, LogRange, LogRequest};
pub use programs::{Programs, Unpacked};
pub use runner::{Runner, RunnerConfig};
pub use schedulers::Schedulers;
