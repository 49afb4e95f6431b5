//! Execution attempts of a job with a guarantee, and the reasons for which a worker ends one.
//!
//! A job without a guarantee is repaired instance by instance. A job with a guarantee is restored
//! as a whole: all workers stop the instances of the current attempt and start the next one from a
//! checkpoint. Processes, connections and threads are reused.

use crate::packing::ContainerId;
use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

use crate::control::{AttemptFailure, Generation, ParticipantId};

/// An execution attempt of a job: its number, and the common starting point of all instances.
/// Attempts with equal generations are the same attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExecutionAttempt {
    /// The number of the attempt, which increases from attempt to attempt. It also distinguishes
    /// the data that attempts have in transit between workers.
    pub generation: Generation,
    /// The committed epoch to restore from, or `None` to start without state.
    pub from: Option<Epoch>,
    /// The attempt that took the checkpoint of the epoch `from`; a part of the checkpoint's name.
    /// Meaningless if `from` is `None`, and for workers that have already started.
    pub taken_in: Generation,
}

/// The reason for which a worker cannot start or continue an attempt. The job is then restored from
/// the newest committed epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AttemptEnd {
    /// An instance failed or could not start, or data in transit to another worker was lost.
    Failed(AttemptFailure),
    /// The checkpoint to restore from is damaged or incomplete.
    Unreadable(String),
    /// The state to restore from is temporarily unavailable: the checkpoint storage cannot be read,
    /// or another process still locks a file. This does not count as a failure of the job.
    Away(String),
}

impl ParticipantId {
    /// Returns the participant for the worker of `container`, which represents all instances in it.
    pub const fn of(container: ContainerId) -> Self {
        ParticipantId(container.0)
    }

    /// Returns the container of this participant, which must be a worker.
    pub const fn container(self) -> ContainerId {
        ContainerId(self.0)
    }
}
