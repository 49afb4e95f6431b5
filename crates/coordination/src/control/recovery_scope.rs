//! The part of a job that is restored after the loss of a worker.

use std::fmt;

use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

use crate::control::WorkerId;

/// The part of a job that is restored after the loss of a worker. The worker itself reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum RecoveryScope {
    /// The whole job, as every job whose records flow at once.
    #[default]
    Job,
    /// The whole job, although it runs in micro-batches, for this reason.
    JobBecause(JobRecoveryReason),
    /// The worker alone: it computes its micro-batches since the checkpoint again, from output that
    /// the other workers have kept. These continue.
    Worker,
}

/// The reason for which a job in micro-batches is restored as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JobRecoveryReason {
    /// The worker runs an instance of a source that is not declared repeatable.
    HasSource,
    /// The worker runs an instance that is not declared repeatable.
    NotRepeatable,
    /// The graph of the job has a feature that a recovery of one worker does not cover: an urgent
    /// input, a side channel, or an instance in a process of its own.
    Feature,
    /// Workers keep no output: `micro_batch.kept_bytes` is zero.
    NothingKept,
    /// The attempt has no committed checkpoint.
    NoCheckpoint,
    /// A worker was restored alone from the same checkpoint before.
    RestoredBefore,
    /// A checkpoint was requested and not committed.
    CheckpointInProgress,
    /// The job does not run undisturbed: another worker is missing or restored, an instance has
    /// ended, or the job is being changed or stopped.
    JobDisturbed,
}

impl fmt::Display for JobRecoveryReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobRecoveryReason::HasSource => "it runs a source that is not repeatable",
            JobRecoveryReason::NotRepeatable => "it runs a step that is not repeatable",
            JobRecoveryReason::Feature => {
                "the job has an urgent input, a side channel or instances in processes of their own"
            }
            JobRecoveryReason::NothingKept => "micro_batch.kept_bytes is 0",
            JobRecoveryReason::NoCheckpoint => "no checkpoint was committed",
            JobRecoveryReason::RestoredBefore => {
                "a worker was restored alone from the same checkpoint before"
            }
            JobRecoveryReason::CheckpointInProgress => "a checkpoint was in progress",
            JobRecoveryReason::JobDisturbed => "the job was being changed, restored or ended",
        })
    }
}

/// A worker that was restored alone in the current attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RestoredWorker {
    /// The new process. Other workers repeat their kept output to it.
    pub worker: WorkerId,
    /// The epoch that the process was restored from, or `None` if it started without state.
    pub from: Option<Epoch>,
    /// True if all workers know of the new process. Before, it does not count as part of the
    /// attempt for a new leader, which does not know that the others are to be told.
    pub is_complete: bool,
}
