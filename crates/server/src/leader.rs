//! Job leaders as processes: the coordination state machines and all of their I/O.
//!
//! The state machines of `ardea-coordination` are pure: they use no socket, clock or disk. This
//! module holds the metadata-store nodes that they read and write, the worker connections, the
//! scheduler calls, and the task that joins them for each job.
//!
//! # Main types
//!
//! * [`submit`]: submits a job to a cluster.
//! * [`MasterProcess`], [`MasterSetup`]: a process that is a leader candidate for every job of a
//!   cluster, or for one; [`Jobs`].
//! * [`LeaderTask`], [`JobHandle`], [`LeadershipState`]: one candidacy for one job, the handle for
//!   requests to it, and its current state; [`CommandError`].
//! * [`JobView`]: the leader's view of a job; [`JobMetrics`]: the metrics of the job's workers;
//!   [`PastJob`]: the summary of a job that has ended.
//! * [`LeaseFinder`]: leader lookup for workers.
//! * [`JobStore`], [`StoredJob`]: the job's nodes in the metadata store; [`PlanState`] and the
//!   like: nodes published for readers.
//! * [`sweep`]: removes nodes that belong to no job.
//!
//! # Invariants
//!
//! * A job exists while its node [`definition`](ardea_metastore::layout::JobLayout::definition)
//!   exists. One write creates the job, and one deletion ends it.
//! * The task of a state machine never waits for the metadata store, a scheduler or a worker.
//! * Published nodes are derived from the job record and written after it. No state machine reads
//!   them back, nor the event history that a leader hands over to its successor.
//! * A lease node names its submission, so a lease that is written late cannot affect a later job
//!   of the same name.
//! * Dropping any of these types has the same effect as the death of the process: containers
//!   continue to run.
//!
//! # Example: submitting a job
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use ardea_coordination::control::{JobDefinition, JobRef, ProgramRef};
//! use ardea_server::leader::{JobStore, new_submission, submit};
//! use ardea_coordination::packing::{JobDemand, PackingConfig, PackingPolicies, Resources, VertexDemand};
//! use ardea_metastore::{FileState, MetadataStore, StateOptions};
//!
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
//! # runtime.block_on(async {
//! let state: Arc<dyn MetadataStore> = Arc::new(FileState::open(folder.path(), StateOptions::default()).await?);
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
//! let (packing, managers) = (PackingConfig::default(), PackingPolicies::builtin());
//! submit(Arc::clone(&state), definition, demand, packing, &managers, Duration::from_secs(10)).await?;
//!
//! let stored = JobStore::new(state, job)?.read().await?.expect("it was just submitted");
//! assert!(stored.record.plan.is_none(), "its master makes the plan");
//! # Ok::<(), ardea_core::Error>(())
//! # }).unwrap();
//! ```

mod clock;
mod encoded_value;

mod past_jobs;
mod store;
mod stored_epochs;
mod stored_job;
mod stored_value;

mod finder;
mod orphan_cleanup;
mod published_state;
mod submit;

mod adaptation;
mod attempt_history;
mod checkpoint_gate;
mod event_history;
mod event_text;
mod history_handover;
mod incarnations;
mod job_metrics;
mod leader_error;
mod measured_rates;
mod scheduling;
mod worker_connections;

mod driver;
mod elasticity;
mod job_replacement;
mod leader_task;
mod master_process;
mod optimization;
mod setup;
mod succession;
mod traffic_placement;
mod view;

pub use finder::LeaseFinder;
pub use job_metrics::JobMetrics;
pub use leader_task::{CommandError, JobHandle, LeaderTask, LeadershipState};
pub use master_process::{Jobs, MasterProcess};
pub use orphan_cleanup::sweep;
pub use past_jobs::{PastJob, REMEMBERED_JOBS, all_past_jobs, past_jobs_of};
pub use published_state::{PlanState, SchedulerState, WorkerState};
pub use setup::{LaunchSetup, MasterSetup};
pub use store::JobStore;
pub use stored_job::{StoredJob, Submitted, is_unreadable};
pub use stored_value::{damage_of, stored_value};
pub use submit::{new_submission, submit};
pub use view::JobView;

pub(crate) use clock::now_ms;
pub(crate) use measured_rates::pair_rates;
pub(crate) use setup::host_of;
pub(crate) use view::stored_description;
