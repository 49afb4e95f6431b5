//! Job masters as processes: control's machines with everything around them that waits.
//!
//! The machines of `ardea-coordination` decide, and know no socket, clock or disk. Here are the state manager's nodes that they read and
//! write, the connections of workers, the calls to schedulers, and the task that joins them for each job.
//!
//! # Main types
//!
//! * [`submit`]: how a job gets into a cluster;
//! * [`MasterProcess`], [`MasterSetup`]: a process that may be master of every job of a cluster, or of one; [`Jobs`];
//! * [`Candidacy`], [`JobDesk`], [`Standing`]: such a process as candidate for one job, where to ask it, and what came of it; [`Undone`];
//! * [`JobView`]: a job as its master sees it; [`EpochsView`]: its epochs and lives; [`JobMetrics`]: what its workers have measured; [`PastJob`]: what is remembered of one that is gone;
//! * [`LeaseFinder`]: how workers find the master;
//! * [`JobStore`], [`StoredJob`]: what stands in the state manager; [`PlanFact`] and the like: what is told there to readers;
//! * [`sweep`]: removes what belongs to no job.
//!
//! # Invariants
//!
//! * A job is there from one write on, and gone from one deletion on: the node [`definition`](ardea_metastore::layout::JobLayout::definition).
//! * The task of a machine never waits for the state manager, a scheduler or a worker.
//! * What is told to readers follows from the record, is written after it, and is read back by no machine; nor is what a master hands
//!   over to the next of what it has seen, which is for people only.
//! * A lease that is written late belongs to its submission, and can do no harm to a later job of that name.
//! * Dropping anything here is as if its process had died; containers go on.
//!
//! # Example: a job is submitted, and a process stands for it
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use ardea_coordination::control::{JobDefinition, JobRef, ProgramRef};
//! use ardea_server::leader::{JobStore, new_submission, submit};
//! use ardea_coordination::packing::{JobDemand, PackingConfig, ResourceManagers, Resources, VertexDemand};
//! use ardea_metastore::{FileState, StateManager, StateOptions};
//!
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
//! # runtime.block_on(async {
//! let state: Arc<dyn StateManager> = Arc::new(FileState::open(folder.path(), StateOptions::default()).await?);
//! let job = JobRef { cluster: "harbour".into(), name: "word-count".into(), submission: new_submission() };
//! let definition = JobDefinition {
//!     job: job.clone(),
//!     program: ProgramRef { package: "0".repeat(64), executable: "word-count".into(), arguments: vec![] },
//!     packing: "round-robin".into(),
//!     scheduler: "local".into(),
//!     settings: Default::default(),
//!     version: "0.1.0".into(),
//! };
//! let demand = JobDemand::new("word-count").vertex(VertexDemand::new("words", 2, Resources::ZERO));
//! let (packing, managers) = (PackingConfig::default(), ResourceManagers::builtin());
//! submit(Arc::clone(&state), definition, demand, packing, &managers, Duration::from_secs(10)).await?;
//!
//! let stored = JobStore::new(state, job)?.read().await?.expect("it was just submitted");
//! assert!(stored.record.plan.is_none(), "its master makes the plan");
//! # Ok::<(), ardea_core::Error>(())
//! # }).unwrap();
//! ```

mod clock;

mod past_jobs;
mod store;
mod stored_epochs;
mod stored_job;
mod stored_value;

mod facts;
mod finder;
mod leftovers;
mod submit;

mod chronicle;
mod handover;
mod job_metrics;
mod links;
mod lived;
mod making;
mod scheduling;
mod trouble;
mod view;

mod candidacy;
mod describe;
mod driver;
mod following;
mod master_process;
mod setup;
mod succession;

pub use candidacy::{Candidacy, JobDesk, Standing, Undone};
pub use facts::{PlanFact, SchedulerFact, WorkerFact};
pub use finder::LeaseFinder;
pub use job_metrics::JobMetrics;
pub use leftovers::sweep;
pub use lived::{CommitView, EpochsView};
pub use master_process::{Jobs, MasterProcess};
pub use past_jobs::{PastJob, REMEMBERED_JOBS, all_past_jobs, past_jobs_of};
pub use setup::{LaunchSetup, MasterSetup};
pub use store::JobStore;
pub use stored_job::{StoredJob, Submitted, is_unreadable};
pub use stored_value::{damage_of, stored_value};
pub use submit::{new_submission, submit};
pub use view::{
    ContainerView, Counted, FailureView, Happening, JobView, MasterView, NoteView, ProblemView,
    VertexView, WorkerView,
};
