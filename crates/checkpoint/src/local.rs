//! Fault tolerance of a job: epochs, checkpoints, and restart from the newest intact checkpoint
//! after a failure.
//!
//! A fault-tolerant job has a [`FaultTolerance`]: its guarantee and the location of its
//! checkpoints. [`FaultTolerantJob`] runs it in one process. The process drives the coordination
//! state machines of a cluster,
//! [`CheckpointCoordinator`](ardea_coordination::control::CheckpointCoordinator) and
//! [`CheckpointParticipant`](ardea_coordination::control::CheckpointParticipant). The process
//! itself is the only participant. After a failure it starts another attempt.
//!
//! In reading order:
//!
//! * [`FaultTolerance`], [`FAULT_TOLERANCE_SETTINGS`]: the guarantee of a job and its settings;
//!   [`RunFaultTolerant`]: runs a job;
//! * [`FaultTolerantJob`], [`FaultTolerantJobHandle`]: a fault-tolerant job; [`JobOutcome`],
//!   [`CheckpointStats`], [`RecoveryEvent`]: its results, statistics and notices;
//! * `job_dir`: the directory of a job, with its `lock` and its `record`; `folder_index`: the index
//!   of a cluster job's checkpoint folder; `graph_compatibility`: checks that a checkpoint fits the
//!   job graph; [`look`]: inspects a folder;
//! * [`savepoint`], [`SavedStateSchema`]: savepoints and the state schema that they contain;
//!   `savepoint_requests`: requests to the process that runs the job;
//! * [`WorkerCheckpointBackend`], [`AttemptCheckpoints`], [`LeaderCheckpointBackend`]: the
//!   checkpoint storage of a cluster job, for its workers and for its leader;
//! * `attempt`: one attempt of the job, whose snapshots are handled by `io`; `driver`: the sequence
//!   of attempts; `failure`: which errors are retried.
//!
//! # Invariants
//!
//! * **An epoch is committed when its checkpoint and then the record are durable.** Instances are
//!   notified only after that.
//! * **One process at a time** owns a directory, by a lock that the kernel releases when the
//!   process ends. An attempt that a new owner finds in the record has therefore ended.
//! * **No problem is skipped silently**: a damaged checkpoint, another job's folder and a job that
//!   has already ended are reported.
//! * Threads that process records never wait for a disk.
//!
//! # Example
//!
//! ```
//! use ardea_connectors::{collections::items, null};
//! use ardea_core::Guarantee;
//! use ardea_pipeline::Pipeline;
//! use ardea_checkpoint::local::{FaultTolerance, JobEnd, RunFaultTolerant};
//!
//! let p = Pipeline::new("tea");
//! p.read_from(items(vec![3, 1, 2])).write_to(null::sink());
//! let survived = p.run_fault_tolerant(&FaultTolerance::in_memory().guarantee(Guarantee::AtLeastOnce))?;
//! assert_eq!(survived.end, JobEnd::Completed);
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod event;
mod fault_tolerance;
mod leader_backend;
mod settings;
mod worker_backend;

mod bucket;
mod folder_index;
mod lock;
mod record;

mod graph_compatibility;
mod import_savepoint;
mod job_dir;

mod failure;

mod attempt;
mod counts;
mod driver;
mod runner;

mod create_savepoint;
mod inspect;
mod savepoint_requests;

pub use crate::savepoint::AllowedDrops;
pub use bucket::{
    address_of, check_address, is_missing, keep_apart, open_place, open_to_write, part_of,
    place_of_savepoint,
};
pub use counts::JobCounts;
pub use create_savepoint::{SAVEPOINT_TIMEOUT, SavedStateSchema, savepoint};
pub use event::RecoveryEvent;
pub use failure::{recover_command, with_recovery_hint};
pub use fault_tolerance::FaultTolerance;
pub use folder_index::{FolderIndex, read_note, write_note, write_state_schema};
pub use import_savepoint::ensure_no_savepoint;
pub use inspect::{CheckpointInspection, Inspection, look};
pub use leader_backend::LeaderCheckpointBackend;
pub use runner::{
    CheckpointStats, FaultTolerantJob, FaultTolerantJobHandle, JobEnd, JobOutcome, RunFaultTolerant,
};
pub use settings::FAULT_TOLERANCE_SETTINGS;
pub use worker_backend::{AttemptCheckpoints, AttemptContext, WorkerCheckpointBackend};
