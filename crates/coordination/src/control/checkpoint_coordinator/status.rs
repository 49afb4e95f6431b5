//! Status messages of the checkpoint coordinator for users.

use std::fmt;
use std::time::Duration;

use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

use super::interface::AbortReason;
use super::message::{Generation, ParticipantId};
use super::record::SafeMode;
use crate::control::Rejection;

/// A status message for users.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CoordinatorStatus {
    /// An epoch was committed.
    Committed {
        /// The epoch.
        epoch: Epoch,
        /// The time from the trigger of the epoch until its checkpoint was recorded.
        took: Duration,
        /// The number of bytes written for the checkpoint.
        bytes: u64,
    },
    /// An epoch has taken more than half of its timeout.
    Slow {
        /// The epoch.
        epoch: Epoch,
        /// The participants that have not saved their snapshots.
        waiting_for: Vec<ParticipantId>,
    },
    /// An epoch was aborted; the job continues.
    Aborted {
        /// The epoch.
        epoch: Epoch,
        /// The reason of the abort.
        why: AbortReason,
    },
    /// More consecutive epochs were aborted than
    /// [`CoordinatorConfig::epochs_tolerated`](crate::control::CoordinatorConfig::epochs_tolerated);
    /// the job continues. Reported again each time `in_a_row` has doubled.
    Failing {
        /// The number of consecutive aborted epochs.
        in_a_row: u32,
        /// The reason of the last abort.
        why: AbortReason,
    },
    /// It is unknown whether the last write of the record succeeded; the coordinator waits until it
    /// knows the outcome.
    RecordDoubtful,
    /// The metadata store refuses the record; the write is retried.
    RecordRefused(Rejection),
    /// The job is being restored.
    RollingBack {
        /// The epoch to restore from; `None` to start without state.
        to: Option<Epoch>,
        /// The reason of the rollback.
        reason: String,
        /// The number of consecutive rollbacks without a committed epoch in between.
        in_a_row: u32,
        /// The delay before the next attempt.
        after: Duration,
    },
    /// A worker is restored alone; the others continue.
    RestoringAlone {
        /// The worker's participant.
        participant: ParticipantId,
        /// The epoch to restore from.
        from: Epoch,
        /// The reason of the recovery.
        reason: String,
    },
    /// A worker was restored alone.
    RestoredAlone {
        /// The worker's participant.
        participant: ParticipantId,
        /// The epoch that it was restored from.
        from: Epoch,
    },
    /// A requested attempt has not started for a long time.
    StartDelayed {
        /// The attempt.
        generation: Generation,
        /// The time since the attempt was requested.
        after: Duration,
        /// The participants that have received their assignment, but have not carried it out.
        waiting_for: Vec<ParticipantId>,
    },
    /// A checkpoint cannot be read; the previous checkpoint is restored instead.
    CheckpointSkipped {
        /// The epoch.
        epoch: Epoch,
        /// The error.
        why: String,
    },
    /// The checkpoint to restore from cannot be read at the moment, for this reason. The restore is
    /// retried. Reported once for each reason.
    Waiting(String),
    /// The job's sources are paused until a user decides; see
    /// [`CheckpointCommand`](crate::control::CheckpointCommand) for the ways out.
    SafeMode(SafeMode),
    /// The paused attempt of a job in safe mode is lost as well, for this reason. The state is
    /// still in the checkpoint.
    Down(String),
}

impl fmt::Display for CoordinatorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CoordinatorStatus::Committed { epoch, took, bytes } => {
                let (epoch, took) = (epoch.0, took.as_millis());
                write!(
                    f,
                    "epoch {epoch} is committed after {took} ms, {bytes} bytes"
                )
            }
            CoordinatorStatus::Slow { epoch, waiting_for } => {
                let count = waiting_for.len();
                let missing = match count {
                    1 => "1 participant is missing".to_string(),
                    count => format!("{count} participants are missing"),
                };
                write!(f, "epoch {} is slow: {missing}", epoch.0)
            }
            CoordinatorStatus::Aborted { epoch, why } => write!(f, "epoch {} was aborted: {why}", epoch.0),
            CoordinatorStatus::Failing { in_a_row, why } => {
                write!(
                    f,
                    "{in_a_row} epochs in a row were aborted, the last one: {why}"
                )
            }
            CoordinatorStatus::RecordDoubtful => {
                f.write_str("it is not known whether the checkpoint record is stored: the metadata store or the checkpoint storage does not answer")
            }
            CoordinatorStatus::RecordRefused(why) => {
                write!(f, "the checkpoint record is not stored: {why}")
            }
            CoordinatorStatus::RollingBack {
                to,
                reason,
                in_a_row,
                after,
            } => {
                match to {
                    Some(epoch) => write!(f, "the job is restored from epoch {}", epoch.0)?,
                    None => f.write_str("the job restarts from the beginning")?,
                }
                match after.as_millis() {
                    0 => f.write_str(" at once")?,
                    after => write!(f, " in {after} ms")?,
                }
                if *in_a_row > 1 {
                    write!(f, ", {in_a_row} times in a row now")?;
                }
                write!(f, ": {reason}")
            }
            CoordinatorStatus::RestoringAlone { participant, from, reason } => write!(
                f,
                "container {participant} is restored alone from epoch {}, the others continue: {reason}",
                from.0
            ),
            CoordinatorStatus::RestoredAlone { participant, from } => write!(
                f,
                "container {participant} is restored alone from epoch {}",
                from.0
            ),
            CoordinatorStatus::StartDelayed {
                generation,
                after,
                waiting_for,
            } => {
                let names: Vec<String> = waiting_for.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "attempt {generation} has not started after {} s: container {} is still stopping the previous attempt, \
                     in which an instance may be blocked in a call, or is reading its state",
                    after.as_secs(),
                    names.join(", ")
                )
            }
            CoordinatorStatus::CheckpointSkipped { epoch, why } => {
                write!(
                    f,
                    "the checkpoint of epoch {} can't be read, using the one before it: {why}",
                    epoch.0
                )
            }
            CoordinatorStatus::Waiting(why) => write!(
                f,
                "the job waits until the checkpoint to restore from can be read: {why}"
            ),
            CoordinatorStatus::SafeMode(why) => {
                write!(
                    f,
                    "safe mode, sources are paused until a user decides how to continue: {why}"
                )
            }
            CoordinatorStatus::Down(why) => {
                write!(f, "in safe mode, the remaining instances of the job are lost: {why}")
            }
        }
    }
}
