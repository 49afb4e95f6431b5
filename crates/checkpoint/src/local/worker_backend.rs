//! The checkpoint storage of a job, as used by its workers.

use std::fmt;
use std::sync::Arc;

use ardea_coordination::control::{EpochKind, ExecutionAttempt, ParticipantEvent};
use ardea_coordination::packing::InstanceId;
use ardea_core::{Epoch, Error, Guarantee, Result};
use ardea_engine::{JobHandle, Parallelisms, SnapshotIo};

/// Storage for the snapshots of a container's instances, over all attempts of a job with a
/// guarantee.
///
/// A worker has one backend, with at most one attempt at a time. The previous attempt is dropped
/// before the next begins, after all its instances have stopped.
pub trait WorkerCheckpointBackend: Send + Sync {
    /// Returns the processing guarantee of the job.
    fn guarantee(&self) -> Guarantee;

    /// Begins the attempt `life`. Called on a separate thread, which may block. The instances read
    /// their state later.
    ///
    /// # Errors
    /// [`ErrorCode::CheckpointDamaged`](ardea_core::ErrorCode::CheckpointDamaged) or
    /// [`ErrorCode::NoSuchCheckpoint`](ardea_core::ErrorCode::NoSuchCheckpoint) if the checkpoint
    /// cannot be read: the job restores an older checkpoint if its guarantee allows this, or enters
    /// safe mode.
    /// [`ErrorCode::CheckpointStoreUnavailable`](ardea_core::ErrorCode::CheckpointStoreUnavailable)
    /// if the checkpoint is temporarily unavailable: the job waits. Any other error is retried.
    fn begin(&self, life: AttemptContext) -> Result<Box<dyn AttemptCheckpoints>>;
}

/// Storage for the snapshots of one attempt. Dropping it ends the attempt; snapshots still being
/// written are discarded.
pub trait AttemptCheckpoints: Send {
    /// Returns the snapshot sink and the restore source of the instances.
    fn snapshots(&self) -> SnapshotIo;

    /// Called when all instances of the container exist and use the [`snapshots`](Self::snapshots)
    /// of this attempt. No further instance will read state.
    fn begun(&mut self, job: &JobHandle) {
        let _ = job;
    }

    /// Called when an epoch is about to end. `kind` is the reason for its end.
    fn ends(&mut self, epoch: Epoch, kind: EpochKind);

    /// Called when an epoch is committed, possibly twice. [`ParticipantEvent::Visible`] must be
    /// sent when all instances in this container have processed the commit. A sink that cannot
    /// publish fails the attempt instead.
    fn committed(&mut self, epoch: Epoch);

    /// Called when an epoch is aborted: the epoch's snapshots are not needed.
    fn aborted(&mut self, epoch: Epoch);
}

/// The parameters and callbacks of an attempt in this container.
#[derive(Clone)]
pub struct AttemptContext {
    /// The attempt, with the checkpoint that it is restored from.
    pub attempt: ExecutionAttempt,
    /// The name of the job, as recorded in its checkpoints.
    pub job: String,
    /// The instances that run in this container.
    pub instances: Vec<InstanceId>,
    /// The parallelism of each vertex in the whole job.
    pub parallelisms: Parallelisms,
    /// Callback for the progress of this container's instances: all snapshots of an epoch are
    /// durable ([`ParticipantEvent::Saved`]) or cannot be saved ([`ParticipantEvent::CannotSave`]),
    /// the last instance has ended and its final snapshot is saved ([`ParticipantEvent::Ended`]),
    /// or all have processed a commit ([`ParticipantEvent::Visible`]). Callable from any thread;
    /// calls after the end of the attempt are ignored.
    pub tell: Arc<dyn Fn(ParticipantEvent) + Send + Sync>,
    /// Callback when all instances of this container are restored; the attempt does not run before.
    /// Callable from any thread. Not required if there is no state to restore.
    pub restored: Arc<dyn Fn() + Send + Sync>,
    /// Callback when the attempt cannot continue in this container. Callable from any thread.
    pub fail: Arc<dyn Fn(Error) + Send + Sync>,
}

impl fmt::Debug for AttemptContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttemptContext {
            attempt: life,
            job,
            instances,
            ..
        } = self;
        write!(f, "LifeHere({job}, {life:?}, {instances:?})")
    }
}
