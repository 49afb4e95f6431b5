//! Schedulers, which start, watch and stop the containers of jobs.
//!
//! The packing plan determines the containers of a job; a scheduler runs them on machines ("Twitter
//! Heron: Towards Extensible Streaming Engines", section IV-B). `initialize` of a [`SchedulerKind`]
//! creates the [`Scheduler`] of one job. A job selects a kind by its name in [`Schedulers`].
//!
//! # Main types
//!
//! * [`SchedulerKind`], [`Scheduler`]: the interface that implementations provide.
//! * [`LaunchPlan`]: the job to start containers for; [`Programs`]: the job's program on a machine.
//! * [`ContainerEvent`], [`ContainerEvents`]: starts and ends of containers.
//! * [`Schedulers`], [`JobScheduler`]: kinds by name, and the leader's handle to a scheduler.
//! * [`LogRequest`], [`LogPiece`]: the output of a container.
//! * [`Runner`]: runs containers on this machine, for [`Local`] and for [`Hosts`], whose machines
//!   have a [`RunnerServer`] each.
//! * [`Slurm`]: containers as jobs of a Slurm cluster.
//!
//! The module `conformance`, behind the feature of that name, has a test suite for all schedulers,
//! including those of users.
//!
//! # Invariants
//!
//! * **Calls are level-triggered.** Each call carries an
//!   [`Order`](ardea_coordination::control::Order) and may be repeated. Completed work is not
//!   repeated, and calls of older leaders are refused.
//! * **Containers outlive their scheduler.** Dropping a scheduler, or the death of its process,
//!   stops no container. A new scheduler of the same job finds all of them.
//! * **Each start of a container has a greater incarnation than all earlier starts.** If two
//!   incarnations of a container are found, the later one counts.
//! * **No process runs without a record.** A started process waits until its record is written
//!   (`runner/record_then_start.rs`).
//! * **After `on_kill` has returned, no reachable process of the job is left.**
//!
//! # Example: a container on this machine
//!
//! ```
//! use ardea_coordination::control::*;
//! use ardea_scheduler::artifacts::*;
//! use ardea_coordination::packing::{ContainerId, Resources};
//! use ardea_scheduler::*;
//! # use std::sync::Arc;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! # let temporary = tempfile::tempdir()?;
//! # let folder = temporary.path();
//! # let packages = format!("file://{}/packages", folder.display());
//! // A package with a program in it, in a store.
//! let packed = Contents::new().file("hello", "/bin/echo")?.pack(folder)?;
//! let store = PackageStores::builtin().open(&packages, &StoreOptions::default())?;
//! store.put(&packed).await?;
//!
//! // A runner of this machine, with a cache of packages.
//! let cache = Cache::open(folder.join("cache"), CacheConfig::default())?;
//! let programs = CachedPrograms::new(cache, PackageStores::builtin(), StoreOptions::default());
//! let runner = Runner::open(RunnerConfig::new(folder), Arc::new(programs)).await?;
//! let schedulers = Schedulers::none().with("local", Local::new(runner));
//!
//! let job = JobRef { cluster: "home".into(), name: "greeting".into(), submission: 1 };
//! let executable = "hello".to_string();
//! let program = ProgramRef {
//!     package: packed.digest().to_string(),
//!     executable,
//!     arguments: vec!["world".into()],
//! };
//! let launch = LaunchPlan {
//!     definition: JobDefinition {
//!         job,
//!         program,
//!         packing: "round-robin".into(),
//!         scheduler: "local".into(),
//!         settings: Default::default(),
//!         version: "0.1.0".into(),
//!     },
//!     packages,
//!     state_url: "file:///tmp/state".into(),
//!     token_file: None,
//!     certificates: None,
//!     environment: Default::default(),
//! };
//! let (scheduler, mut events) = schedulers.start(launch).await?;
//!
//! let order = |number| Order { epoch: MasterEpoch(1), number };
//! let (id, required) = (ContainerId(1), Resources::ZERO);
//! let container = ContainerRequest { id, required, attributes: Default::default() };
//! let answer = scheduler.call(order(1), SchedulerCall::EnsureContainers(vec![container])).await;
//! assert_eq!(answer, SchedulerAnswer::Done);
//! let how = loop {
//!     match events.next().await {
//!         Some(ContainerEvent::Exited { how, .. }) => break how,
//!         Some(_) => {}
//!         None => return Err("nobody tells".into()),
//!     }
//! };
//! assert_eq!(how, Ending::Code(0));
//! let said = scheduler.logs(id, LogRequest::tail(LogFile::Stdout, 1)).await?;
//! assert_eq!(said.bytes, b"world\n");
//! assert_eq!(scheduler.call(order(2), SchedulerCall::Kill).await, SchedulerAnswer::Done);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod artifacts;

mod event;
mod launch;
mod logs;

mod interface;
mod job_scheduler;
mod schedulers;

mod programs;
mod runner;

mod retained_logs;

mod hosts;
mod local;
mod slurm;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use event::{
    ContainerEvent, ContainerEvents, Ending, EventFeed, RunningContainer, container_events,
};
pub use hosts::{
    Drains, HeldContainer, HostIdentity, HostRecord, Hosts, RunnerServer, check_room_elsewhere,
};
pub use interface::{Pending, Scheduler, SchedulerKind};
pub use job_scheduler::JobScheduler;
pub use launch::LaunchPlan;
pub use local::Local;
pub use logs::{LogFile, LogPiece, LogRange, LogRequest};
pub use programs::{CachedPrograms, Programs, Unpacked};
pub use retained_logs::{RetainedLogs, RetentionLimits};
pub use runner::{
    IGNORE_TERMINAL_SIGNALS, Runner, RunnerConfig, TUNE_MALLOC, abandoned_jobs, forget_abandoned,
};
pub use schedulers::{HOSTS, LOCAL, Schedulers, no_such_scheduler};
pub use slurm::{SLURM_OPTIONS, Slurm, SlurmConfig, slurm_options};
