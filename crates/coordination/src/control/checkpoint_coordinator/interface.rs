//! Events, actions, commands and configuration of the checkpoint coordinator.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Epoch, Error, ErrorCode, Guarantee};
use serde::{Deserialize, Serialize};

use super::attempt::AttemptFailure;
use super::message::{FromParticipant, Generation, ParticipantId, ToParticipant};
use super::record::{CheckpointRecord, SafeMode};
use super::status::CoordinatorStatus;
use crate::control::{
    BackoffConfig, CommandId, MasterEpoch, PlanVersion, Rejection, RequestId, StoreReply,
    StoreRequest,
};

/// Checkpoint and recovery settings of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoordinatorConfig {
    /// The processing guarantee. Unless it is exactly-once, the job restores the previous
    /// checkpoint if the newest is unreadable, and publishes results again.
    pub guarantee: Guarantee,
    /// True if the job restores the previous checkpoint even with exactly-once.
    pub goes_back: bool,
    /// The checkpoint interval, from the end of an epoch to the end of the next; the first one if
    /// it is tuned.
    pub interval: Duration,
    /// True if the interval is tuned: it becomes longer while checkpoints take more than a tenth of
    /// it, and shorter while they take less than a twentieth.
    pub tunes_interval: bool,
    /// The time in which participants must save their snapshots of an epoch; then the epoch is
    /// aborted.
    pub timeout: Duration,
    /// The minimum pause between the commit or abort of an epoch and the end of the next, even if
    /// an epoch is requested. A new leader may end its first epoch immediately.
    pub pause: Duration,
    /// The number of consecutive aborted epochs that are tolerated before a warning; aborts never
    /// fail the job.
    pub epochs_tolerated: u32,
    /// The number of consecutive failed attempts, without an epoch recorded in between, before the
    /// job enters safe mode. A recorded epoch does not interrupt the count if the same vertex fails
    /// with the same error before it has processed a record; see [`AttemptFailure::signature`].
    pub failed_attempts_tolerated: u32,
    /// The delay before each new attempt.
    pub restart: BackoffConfig,
    /// The number of checkpoints to retain, not counting savepoints.
    pub kept: NonZeroUsize,
    /// The time after which an unconfirmed message to a participant is repeated.
    pub repeat_after: Duration,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        CoordinatorConfig {
            guarantee: Guarantee::ExactlyOnce,
            goes_back: false,
            interval: Duration::from_secs(1),
            tunes_interval: false,
            timeout: Duration::from_secs(60),
            pause: Duration::from_millis(100),
            epochs_tolerated: 3,
            failed_attempts_tolerated: 8,
            restart: BackoffConfig::default(),
            kept: NonZeroUsize::MIN.saturating_add(1),
            repeat_after: Duration::from_secs(1),
        }
    }
}

/// An event for the checkpoint coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CoordinatorEvent {
    /// Time has passed. Must come at least every 50 ms.
    Tick,
    /// A reply of the metadata store.
    Record(RequestId, StoreReply<Arc<CheckpointRecord>>),
    /// An attempt has started, or was found running: all of its participants are restored.
    Begun {
        /// The attempt.
        generation: Generation,
        /// The epoch that the attempt was restored from, if any.
        restored_from: Option<Epoch>,
        /// The participants of the attempt. A participant that had completed in the checkpoint is
        /// included, and reports its completion again.
        participants: Vec<ParticipantId>,
    },
    /// An attempt cannot start as requested.
    NotBegun {
        /// The attempt.
        generation: Generation,
        /// The reason.
        reason: String,
    },
    /// An attempt cannot start because the checkpoint is damaged or incomplete.
    Unreadable {
        /// The attempt.
        generation: Generation,
        /// The error.
        reason: String,
    },
    /// An attempt cannot start because the checkpoint storage cannot be read at the moment. The
    /// start is retried, and does not count as a failure.
    Away {
        /// The attempt.
        generation: Generation,
        /// The reason.
        reason: String,
    },
    /// A message from a participant.
    From(FromParticipant),
    /// A participant is lost, and with it the state in its memory.
    Lost {
        /// The attempt.
        generation: Generation,
        /// The participant.
        participant: ParticipantId,
        /// The reason, for users.
        reason: String,
    },
    /// An instance of a participant has failed, or cannot start.
    Failed {
        /// The attempt.
        generation: Generation,
        /// The participant.
        participant: ParticipantId,
        /// The failure.
        failure: AttemptFailure,
    },
    /// Attempts that start from now on use this plan ([`CheckpointRecord::plan`]), which must have
    /// been stored before. If the current attempt uses another plan, two epochs end: a regular one,
    /// and a handover, which pauses the sources. When the handover is committed, the next attempt
    /// starts from exactly this point.
    Arranged(PlanVersion),
    /// A user's command.
    Command(CommandId, CheckpointCommand),
}

/// A user's command for the checkpoint coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CheckpointCommand {
    /// End an epoch now, and retain its checkpoint until [`Forget`](Self::Forget) releases it.
    Savepoint,
    /// End a final epoch, and stop the job when all participants have confirmed its commit. In safe
    /// mode, stop the job immediately.
    Stop,
    /// Leave safe mode after its cause was fixed: restart from the committed epoch. If the job
    /// [waits](CoordinatorStatus::Waiting) for its checkpoint, retry immediately.
    Retry,
    /// Leave safe mode by a restart from the checkpoint of an earlier epoch, or from the beginning
    /// if `None`. Output published since then is published again. Also possible while the job
    /// [waits](CoordinatorStatus::Waiting) for its checkpoint.
    GoBackTo(Option<Epoch>),
    /// Release the savepoint of this epoch.
    Forget(Epoch),
}

/// The reason for which a command was not executed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum EpochNotDone {
    /// The epoch was aborted.
    #[error("epoch {} was aborted: {why}", epoch.0)]
    GivenUp {
        /// The epoch.
        epoch: Epoch,
        /// The reason.
        why: AbortReason,
    },
    /// The job is in safe mode, for this reason.
    #[error("the job is in safe mode: {0}")]
    SafeMode(SafeMode),
    /// The job is not in safe mode.
    #[error("the job isn't in safe mode")]
    NotInSafeMode,
    /// The job is stopping.
    #[error("the job is stopping")]
    Stopping,
    /// There are no more epochs.
    #[error("{0}")]
    Over(EpochsOver),
    /// There is no such checkpoint, or the command does not apply to it.
    #[error("there is no such checkpoint of epoch {}", .0.0)]
    NoSuchCheckpoint(Epoch),
}

impl EpochNotDone {
    /// Returns the stable error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            EpochNotDone::GivenUp { .. } => ErrorCode::WriteFailed,
            EpochNotDone::Over(EpochsOver::Superseded(_)) => ErrorCode::Superseded,
            _ => ErrorCode::WrongState,
        }
    }

    /// Returns the hint for users.
    pub fn hint(&self) -> &'static str {
        match self {
            EpochNotDone::GivenUp { .. } => "the job keeps running; fix the cause, and try again",
            EpochNotDone::SafeMode(_) => {
                "retry when its reason is gone, go back to an earlier checkpoint, or stop the job"
            }
            EpochNotDone::NotInSafeMode => "nothing: it runs, or recovers by itself",
            EpochNotDone::Stopping => "nothing: its state is kept",
            EpochNotDone::Over(EpochsOver::Superseded(_)) => "try again: another process leads it",
            EpochNotDone::Over(_) => "nothing: the job has ended",
            EpochNotDone::NoSuchCheckpoint(_) => "check the list of the job's checkpoints",
        }
    }
}

impl From<EpochNotDone> for Error {
    fn from(not_done: EpochNotDone) -> Error {
        let (code, hint) = (not_done.code(), not_done.hint());
        Error::new(code, "not done").because(not_done).hint(hint)
    }
}

/// The reason for which an epoch was aborted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AbortReason {
    /// These participants have not saved their snapshots in time.
    TimedOut(Vec<ParticipantId>),
    /// A participant cannot save its snapshot.
    CannotSave(ParticipantId, String),
    /// The checkpoint cannot be recorded.
    NotRecorded(Rejection),
    /// The job was restored from the last committed epoch, for this reason.
    RolledBack(String),
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AbortReason::TimedOut(waiting_for) => match waiting_for.len() {
                1 => write!(f, "1 participant is late"),
                count => write!(f, "{count} participants are late"),
            },
            AbortReason::CannotSave(participant, why) => {
                write!(f, "participant {participant} can't save its state: {why}")
            }
            AbortReason::NotRecorded(why) => write!(f, "the checkpoint can't be recorded: {why}"),
            AbortReason::RolledBack(why) => write!(f, "the job was rolled back: {why}"),
        }
    }
}

/// The checkpoints of a job that are still needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequiredCheckpoints {
    /// The epochs of the needed checkpoints, oldest first. After the job has gone back, they may
    /// include savepoints that are later than `committed`.
    pub epochs: Vec<Epoch>,
    /// The newest committed epoch, which is one of `epochs`.
    pub committed: Option<Epoch>,
    /// The exclusive upper bound of the epochs whose data may be removed.
    pub below: Epoch,
    /// The current attempt.
    pub generation: Generation,
}

/// An action requested by the checkpoint coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CoordinatorAction {
    /// Send a request about the record to the metadata store.
    Record(RequestId, StoreRequest<Arc<CheckpointRecord>>),
    /// Send a message to the participant; it may be lost.
    To(ParticipantId, ToParticipant),
    /// Start an attempt: end earlier attempts, and restore all participants from the checkpoint of
    /// the epoch `to` ([`CheckpointRecord::checkpoint`]). Output prepared for later epochs is void,
    /// and output prepared in the checkpoint is committed.
    ///
    /// Must be answered, without a time limit, by [`CoordinatorEvent::Begun`],
    /// [`CoordinatorEvent::NotBegun`], [`CoordinatorEvent::Unreadable`] or
    /// [`CoordinatorEvent::Away`].
    RollBack {
        /// The attempt.
        generation: Generation,
        /// The epoch to restore from, or `None` to start without state.
        to: Option<Epoch>,
        /// True if the sources must not read.
        paused: bool,
    },
    /// Find the participants of a running attempt. Report [`CoordinatorEvent::Begun`] when all are
    /// present, or [`CoordinatorEvent::Lost`] for a missing participant.
    Resume {
        /// The attempt.
        generation: Generation,
    },
    /// Remove all data of epochs below [`RequiredCheckpoints::below`], except the listed
    /// checkpoints and the data that they refer to. Snapshots of aborted epochs are removed too.
    /// The removal may be late, even after this leadership.
    ///
    /// Final snapshots of completed participants belong to no single epoch, since they count in all
    /// later ones. They are needed while a retained checkpoint refers to them, and while their
    /// attempt is current.
    Keep(RequiredCheckpoints),
    /// Answer a command. A successful answer has the newest committed epoch, if any.
    Reply(CommandId, Result<Option<Epoch>, EpochNotDone>),
    /// Report a status to the user.
    Note(CoordinatorStatus),
    /// There are no more epochs; the coordinator does nothing from now on.
    Over(EpochsOver),
}

/// The reason for which there are no more epochs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EpochsOver {
    /// All participants have completed, and all their output is committed and visible.
    Finished,
    /// A user has stopped the job. Its state is in the checkpoint of the committed epoch, whose
    /// output is visible. If the job was stopped in safe mode, unpublished output is in the
    /// checkpoint.
    Stopped,
    /// The job's record is gone.
    Gone,
    /// Another leader has taken over.
    Superseded(MasterEpoch),
}

impl fmt::Display for EpochsOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EpochsOver::Finished => f.write_str("the job has finished"),
            EpochsOver::Stopped => f.write_str("the job has stopped"),
            EpochsOver::Gone => f.write_str("the job is gone"),
            EpochsOver::Superseded(newest) => write!(f, "master {} has taken over", newest.0),
        }
    }
}
