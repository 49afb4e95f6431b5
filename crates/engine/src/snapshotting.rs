//! The interfaces between the state of a job and its storage.
//!
//! * `snapshot_io`: the destination of snapshots, and the source of restored state;
//! * `state_handoff`: state that stays in memory between two attempts of a job.

mod snapshot_io;
mod state_handoff;

pub use snapshot_io::{
    InstanceName, RecordCounts, RestoreReader, RestoreSource, SnapshotAbort, SnapshotIo,
    SnapshotRead, SnapshotReport, SnapshotSink,
};
pub use state_handoff::StateHandoff;

pub(crate) use snapshot_io::EpochOutcome;
pub(crate) use state_handoff::HandedOffState;
