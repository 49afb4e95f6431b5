//! Schedulers: they start, watch and stop the containers of jobs.
//!
//! The packing says which containers a job has; a scheduler gets them somewhere ("Twitter Heron: Towards Extensible
//! Streaming Engines", section IV-B). Its interface is [`Scheduler`], made for one job by a [`SchedulerKind`]'s
//! `initialize`; a job chooses a kind by its name among [`Schedulers`].
//!
//! # Main types
//!
//! * [`SchedulerKind`], [`Scheduler`]: the interface, which an implementation of one's own implements.
//! * [`LaunchPlan`]: the job that containers are started for; [`Programs`]: where its program is on a machine.
//! * [`ContainerEvent`], [`ContainerEvents`]: which containers have started and ended, and how.
//! * [`Schedulers`], [`JobScheduler`]: kinds by name, and what a job's master holds of one.
//! * [`LogRequest`], [`LogPiece`]: what a container has written.
//! * [`Runner`]: runs containers on this machine, for [`Local`] and for [`Hosts`], whose machines have a [`RunnerServer`] each.
//! * [`Slurm`]: containers as jobs of a Slurm cluster.
//!
//! A suite that every scheduler passes, one's own too, is in `conformance`, behind the feature of that name.
//!
//! # Invariants
//!
//! * **Calls are made by level.** Each comes with an [`Order`](ardea_coordination::control::Order) and may be repeated. What was carried
//!   out is not done twice, and what an older master says is not done.
//! * **Containers outlive their scheduler.** Dropping one, or the death of its process, stops none of them; one that is made
//!   anew for the same job finds them all.
//! * **Each start of a container has an incarnation greater than all before it**, and of two lives of a container the later
//!   counts, wherever they are found.
//! * **No process runs that is not written down.** It waits at a gate until it is (`runner/gate.rs`).
//! * **After `on_kill` has returned no process of the job is left that can be reached.**
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
//! let answer = scheduler.call(order(1), SchedulerCall::Have(vec![container])).await;
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

mod kept_output;

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
pub use kept_output::{KeptBounds, KeptOutput};
pub use launch::LaunchPlan;
pub use local::Local;
pub use logs::{LogFile, LogPiece, LogRange, LogRequest};
pub use programs::{CachedPrograms, Programs, Unpacked};
pub use runner::{
    KEEPS_MEMORY, Runner, RunnerConfig, UNATTENDED, abandoned_jobs, forget_abandoned,
};
pub use schedulers::{HOSTS, LOCAL, Schedulers, no_such_scheduler};
pub use slurm::{SLURM_OPTIONS, Slurm, SlurmConfig, slurm_options};
