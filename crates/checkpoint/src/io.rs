//! Asynchronous snapshot and restore between the instances of a process and a checkpoint store.
//!
//! The engine produces snapshots and consumes state in chunks, on threads that must not block; a
//! store blocks on file access. This module has the buffers and threads between the engine and the
//! store. It does not depend on the coordinator of a job's epochs, and serves jobs of one process
//! or many.
//!
//! In reading order:
//!
//! * [`SnapshotWriterPool`], [`SnapshotLocation`], [`Writers`], [`SnapshotEvent`]: writes the
//!   snapshots of an attempt on separate threads;
//! * [`SnapshotTracker`], [`TrackerEvent`]: determines when the snapshots of all instances are
//!   complete;
//! * [`Alignment`]: measures how long inputs were blocked for barriers;
//! * [`StateReading`]: reads a checkpoint for the instances of a process, several parts
//!   concurrently;
//! * [`counts`], [`is_same`]: check whether increments may be based on a checkpoint;
//! * [`MaintenanceWorker`], [`MaintenanceTask`]: compacts layers and removes obsolete files in the
//!   background; [`GcHorizon`]: decides when to search for obsolete files.
//!
//! # Invariants
//!
//! * Threads that process records never wait for a file. Threads that write or compact files run at
//!   a lower priority.
//! * A snapshot is reported only when all of it is durable.
//! * Buffers are bounded; a producer that finds them full is woken when there is space.
//! * Nothing more is written for an attempt that is over.
//!
//! # Example
//!
//! ```
//! use ardea_core::{Epoch, Instance};
//! use ardea_checkpoint::io::{TrackerEvent, SnapshotTracker};
//! use ardea_engine::InstanceName;
//! use ardea_checkpoint::store::{SnapshotOwner, StateHandle, CheckpointId};
//!
//! let instance = Instance { index: 0, parallelism: 1 };
//! let name = InstanceName { vertex: "count".into(), instance };
//! let mut gathering = SnapshotTracker::of(3, [name.clone()]);
//! gathering.ends(Epoch(7));
//! assert!(gathering.take_events().is_empty());
//!
//! let checkpoint = CheckpointId::new(3, Epoch(7));
//! let of = SnapshotOwner { checkpoint, vertex: "count".into(), instance: 0, instances: 1 };
//! gathering.saved(&name, Epoch(7), false, StateHandle::unchanged(of));
//! assert!(matches!(gathering.take_events()[..], [TrackerEvent::Saved(Epoch(7), _)]));
//! ```

mod ack_tracker;
mod alignment;
mod base_compatibility;

mod reading;
mod snapshot_writer;

mod gc_horizon;
mod maintenance;

pub use ack_tracker::{SnapshotTracker, TrackerEvent};
pub use alignment::Alignment;
pub use base_compatibility::{counts, is_same};
pub use gc_horizon::GcHorizon;
pub use maintenance::{MaintenanceTask, MaintenanceWorker};
pub use reading::{StateReading, as_unavailable};
pub use snapshot_writer::{
    SnapshotEvent, SnapshotLocation, SnapshotWriterPool, Writers, block_config,
};
