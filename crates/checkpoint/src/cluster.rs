//! Checkpoint storage of a cluster's jobs: in folders shared by all hosts, in buckets, or in the
//! memory of hosts.
//!
//! The workers of a job with a guarantee write the snapshots of their instances into its folder,
//! under names unique to each writer. For each epoch a worker also writes a **worker manifest**,
//! the list of its snapshots. The workers send the file names of their manifests to the job's
//! leader. The leader merges the manifests of all workers into a checkpoint before it records the
//! epoch as committed. The next attempt restores the checkpoint that the record names.
//!
//! In reading order:
//!
//! * [`CheckpointConfig`]: the guarantee of a job and the location of its checkpoints;
//!   [`prepare_location`], `location_check`: creates the folder, and checks that all processes see
//!   the same one; [`GridObjectStore`]: a folder in the memory of hosts; `write_through_store`: a
//!   folder with a copy in memory;
//! * [`WorkerCheckpointStore`]: the worker's side; `ack_writer`: writes the `worker_manifest` of
//!   each epoch; `free_space`: waits for disk space; `loss_monitor`: repeats full snapshots after a
//!   loss of data in memory;
//! * [`JobCheckpointStores`]: the leader's side; `committer`: makes checkpoints of worker manifests
//!   and removes obsolete files; [`CommitStats`]: statistics that are not in checkpoints;
//! * [`CheckpointSource`]: inspection of a job's checkpoints;
//! * [`write_states`], [`states_of`]: the state schema of a job in the attributes of its vertices;
//!   `initial_state`: jobs that start with existing state; [`compare`]; [`save`]: savepoints.
//!
//! # Invariants
//!
//! * **One writer per name**: no two processes write the same file, even if both take themselves
//!   for the same worker, and no file is changed after it was written.
//! * **A checkpoint is written before it is recorded, and only the record commits it.**
//! * **A leader merges the snapshots of the attempt in its own record.** Files of other attempts
//!   are ignored.
//! * **Files that the record needs are retained**: its checkpoints, and the final manifests of
//!   finished workers during their attempt.
//!
//! # Example
//!
//! ```
//! use ardea_checkpoint::cluster::CheckpointConfig;
//! use ardea_coordination::control::JobRef;
//!
//! let job = JobRef { cluster: "harbour".into(), name: "word-count".into(), submission: 42 };
//! let settings = [("guarantee", "exactly-once"), ("checkpoints.folder", "/mnt/state")];
//! let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
//! let promise = CheckpointConfig::by(&settings.into(), &job)?.expect("it promises something");
//! assert_eq!(promise.place.to_string(), "/mnt/state/word-count-2a");
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod checkpoint_config;
mod grid_store;
mod location_check;
mod write_through_store;

mod worker_manifest;

mod ack_writer;
mod free_space;
mod loss_monitor;
mod worker_store;

mod committer;
mod job_stores;

mod inspect;

mod initial_state;
mod schema_attributes;

pub use crate::local::{address_of, recover_command};
pub use crate::savepoint::{JobStateSchema, SavepointManifest};
pub use checkpoint_config::{CheckpointConfig, CheckpointLocation, Origin};
pub use committer::{CommitStats, CommitStatsLog};
pub use grid_store::GridObjectStore;
pub use initial_state::{compare, kept_states, prepare_location, save};
pub use inspect::CheckpointSource;
pub use job_stores::JobCheckpointStores;
pub use location_check::{make_place, unmake_place};
pub use schema_attributes::{states_of, write_states};
pub use worker_store::WorkerCheckpointStore;
