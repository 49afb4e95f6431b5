//! The checkpoint storage of a job, as used by its leader.

use std::fmt;
use std::sync::Arc;

use ardea_coordination::control::{
    CheckpointRecord, CoordinatorConfig, CoordinatorStatus, JobDefinition, JobRef,
    PredecessorState, RequiredCheckpoints, Successor,
};
use ardea_core::{Error, ErrorCode, Result};

/// Checkpoint storage of jobs with a guarantee, as used by the leader process.
///
/// A leader first calls [`epochs`](Self::epochs) for its job. Other calls have no effect for a job
/// without this first call or without a guarantee.
pub trait LeaderCheckpointBackend: Send + Sync + fmt::Debug {
    /// Returns the guarantee and the checkpoint settings of the job; `None` if it has no guarantee.
    ///
    /// # Errors
    /// If the settings of the job are invalid.
    fn epochs(&self, definition: &JobDefinition) -> Result<Option<CoordinatorConfig>>;

    /// Writes the checkpoints of the epochs that this record commits. Called before each attempt to
    /// write the record. May block while writing.
    ///
    /// # Errors
    /// If a checkpoint cannot be written. The record is then not written and the epoch is aborted.
    /// Always fails for a job that is unknown here or [gone](Self::gone).
    fn make(&self, job: &JobRef, record: &Arc<CheckpointRecord>) -> Result<()> {
        let _ = (job, record);
        Ok(())
    }

    /// Returns true if the job starts with state from a savepoint or another job. Must not block.
    fn has_initial_state(&self, job: &JobRef) -> bool {
        let _ = job;
        false
    }

    /// Imports the [initial state](Self::has_initial_state) of a job that has no record yet, and
    /// returns the job's first checkpoint record. `None` if the job starts without state. May
    /// block; a repeated call continues the import.
    ///
    /// # Errors
    /// If the state cannot be imported. The job does not start then.
    fn import_initial_state(&self, job: &JobRef) -> Result<Option<Arc<CheckpointRecord>>> {
        let _ = job;
        Ok(None)
    }

    /// Prepares `next` to continue from the state of its predecessor of the same name. Returns the
    /// definition of `next` to be stored. May block for file access; idempotent.
    ///
    /// # Errors
    /// If `next` cannot be restored from that state, or nothing can be written for it.
    fn follow(&self, next: &Successor, left: &PredecessorState<'_>) -> Result<JobDefinition> {
        let _ = left;
        let what = format!(
            "there is no stored state for {} to be restored from",
            next.definition.job
        );
        Err(Error::new(ErrorCode::WrongState, what))
    }

    /// Handles a status change of the job's coordinator, for notices to users. Must not block.
    fn noted(&self, job: &JobRef, note: &CoordinatorStatus) {
        let _ = (job, note);
    }

    /// Handles the removal of the job from the cluster. Must not block.
    fn gone(&self, job: &JobRef) {
        let _ = job;
    }

    /// Handles the set of needed checkpoints, see
    /// [`CoordinatorAction::Keep`](ardea_coordination::control::CoordinatorAction::Keep). Must not
    /// block: the implementation may act later, or skip a call that another one follows.
    fn keep(&self, job: &JobRef, needed: &RequiredCheckpoints);
}
