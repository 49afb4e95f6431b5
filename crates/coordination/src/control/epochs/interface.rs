//! What happens to the conductor of a job's epochs, and what it wants done.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Epoch, Error, ErrorCode, Guarantee};
use serde::{Deserialize, Serialize};

use super::attempt::AttemptFailure;
use super::message::{FromParticipant, Generation, ParticipantId, ToParticipant};
use super::note::EpochsNote;
use super::record::{EpochsRecord, SafeMode};
use crate::control::{
    BackoffConfig, CommandId, MasterEpoch, PlanVersion, Refused, RequestId, StoreReply,
    StoreRequest,
};

/// When epochs end, and what happens if that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochsConfig {
    /// What the job promises. Unless it is exactly once, a snapshot that can't be read is passed over for the one before it, so that results
    /// are published again.
    pub guarantee: Guarantee,
    /// Whether a snapshot that can't be read is passed over even if it is exactly once.
    pub goes_back: bool,
    /// From the end of an epoch to that of the next.
    pub interval: Duration,
    /// How long participants may take to save their cuts before an epoch is given up.
    pub timeout: Duration,
    /// The least time between an epoch that is committed or given up and the end of the next, whoever asks for one; a new master ends one at once.
    pub pause: Duration,
    /// How many epochs in a row may be given up before that is a problem that people are told; it never fails the job.
    pub epochs_tolerated: u32,
    /// How many lives of the job in a row may fail, with no epoch recorded in between, before it goes to safe mode. An epoch doesn't count
    /// if the same vertex fails with the same error, and had processed nothing; see [`AttemptFailure::signature`].
    pub lives_tolerated: u32,
    /// How long to wait before the next of them.
    pub restart: BackoffConfig,
    /// How many snapshots are kept, savepoints not counted.
    pub kept: NonZeroUsize,
    /// After how long a word that nothing has come of is said again.
    pub repeat_after: Duration,
}

impl Default for EpochsConfig {
    fn default() -> Self {
        EpochsConfig {
            guarantee: Guarantee::ExactlyOnce,
            goes_back: false,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(60),
            pause: Duration::from_millis(100),
            epochs_tolerated: 3,
            lives_tolerated: 8,
            restart: BackoffConfig::default(),
            kept: NonZeroUsize::MIN.saturating_add(1),
            repeat_after: Duration::from_secs(1),
        }
    }
}

/// What happens to the conductor of a job's epochs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EpochsEvent {
    /// Time has passed; comes at least every 50 ms.
    Tick,
    /// The state manager's answer.
    Record(RequestId, StoreReply<Arc<EpochsRecord>>),
    /// A life of the job has begun, or was found: these take part, and all of them are restored.
    Begun {
        /// Which.
        generation: Generation,
        /// From which epoch it was restored.
        restored_from: Option<Epoch>,
        /// Who takes part. One that had ended in the snapshot is among them, and says again that it has.
        participants: Vec<ParticipantId>,
    },
    /// A life of the job can't begin, or not as it should.
    NotBegun {
        /// Which.
        generation: Generation,
        /// Why.
        reason: String,
    },
    /// A life of the job can't begin because the snapshot is damaged, or parts of it are missing.
    Unreadable {
        /// Which.
        generation: Generation,
        /// What is wrong.
        reason: String,
    },
    /// A life of the job can't begin because the place of the snapshot can't be read at the moment. It is tried again until it can, and
    /// counts as no failure.
    Away {
        /// Which.
        generation: Generation,
        /// Why.
        reason: String,
    },
    /// A word from a participant.
    From(FromParticipant),
    /// A participant is gone, with what it remembered.
    Lost {
        /// Of which life of the job.
        generation: Generation,
        /// Who.
        participant: ParticipantId,
        /// Why, for people.
        reason: String,
    },
    /// An instance of a participant has failed, or can't begin.
    Failed {
        /// Of which life of the job.
        generation: Generation,
        /// The participant.
        participant: ParticipantId,
        /// How.
        failure: AttemptFailure,
    },
    /// The job's plan is this one: lives that begin from now on are arranged by it ([`EpochsRecord::plan`]). If the present one is not, an epoch
    /// ends, and right behind it another, which holds the sources; when that is committed another life begins from exactly there. The plan has to
    /// be stored before.
    Arranged(PlanVersion),
    /// A user wants something.
    Command(CommandId, EpochsCommand),
}

/// What a user may want of a job's epochs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EpochsCommand {
    /// Have an epoch end now, and keep its snapshot until it is forgotten.
    Savepoint,
    /// Have a last epoch end, and stop the job when everybody has heard that it is committed. In safe mode: stop it as it is.
    Stop,
    /// The way out of safe mode when its reason is gone: begin again from the committed epoch. Who [waits](EpochsNote::Waiting) for what it should
    /// go back to looks at once.
    Retry,
    /// The way out of safe mode when that epoch is the reason: begin again from an earlier snapshot, or from the beginning. What was published
    /// since is published again. So it is for who [waits](EpochsNote::Waiting), and need not.
    GoBackTo(Option<Epoch>),
    /// A savepoint is not needed any more.
    Forget(Epoch),
}

/// Why something that a user wanted was not done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum EpochNotDone {
    /// The epoch was given up.
    #[error("epoch {} was given up: {why}", epoch.0)]
    GivenUp {
        /// Which.
        epoch: Epoch,
        /// Why.
        why: GivenUp,
    },
    /// The job is in safe mode, for this reason.
    #[error("the job is in safe mode: {0}")]
    SafeMode(SafeMode),
    /// The job isn't in safe mode.
    #[error("the job isn't in safe mode")]
    NotInSafeMode,
    /// The job is stopping.
    #[error("the job is stopping")]
    Stopping,
    /// There are no epochs any more.
    #[error("{0}")]
    Over(EpochsOver),
    /// There is no such snapshot, or it isn't one that this can be done with.
    #[error("there is no such snapshot of epoch {}", .0.0)]
    NoSuchSnapshot(Epoch),
}

impl EpochNotDone {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            EpochNotDone::GivenUp { .. } => ErrorCode::WriteFailed,
            EpochNotDone::Over(EpochsOver::Superseded(_)) => ErrorCode::Superseded,
            _ => ErrorCode::WrongState,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            EpochNotDone::GivenUp { .. } => "the job goes on; mend the reason, and try again",
            EpochNotDone::SafeMode(_) => {
                "retry when its reason is gone, go back to an earlier snapshot, or stop the job"
            }
            EpochNotDone::NotInSafeMode => "nothing: it runs, or recovers by itself",
            EpochNotDone::Stopping => "nothing: its state is kept",
            EpochNotDone::Over(EpochsOver::Superseded(_)) => "try again: another process leads it",
            EpochNotDone::Over(_) => "nothing: the job has ended",
            EpochNotDone::NoSuchSnapshot(_) => "look at the list of the job's snapshots",
        }
    }
}

impl From<EpochNotDone> for Error {
    fn from(not_done: EpochNotDone) -> Error {
        let (code, hint) = (not_done.code(), not_done.hint());
        Error::new(code, "not done").because(not_done).hint(hint)
    }
}

/// Why an epoch was given up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum GivenUp {
    /// Not everybody has saved its cut in time; these haven't.
    TimedOut(Vec<ParticipantId>),
    /// A participant can't save its cut.
    CannotSave(ParticipantId, String),
    /// The snapshot can't be recorded.
    NotRecorded(Refused),
    /// The job has gone back to the last committed epoch, for this reason.
    RolledBack(String),
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GivenUp::TimedOut(waiting_for) => match waiting_for.len() {
                1 => write!(f, "1 participant is late"),
                count => write!(f, "{count} participants are late"),
            },
            GivenUp::CannotSave(participant, why) => {
                write!(f, "participant {participant} can't save its state: {why}")
            }
            GivenUp::NotRecorded(why) => write!(f, "the snapshot can't be recorded: {why}"),
            GivenUp::RolledBack(why) => write!(f, "the job was rolled back: {why}"),
        }
    }
}

/// Which snapshots of a job are needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Needed {
    /// Whose snapshots are needed, the oldest first. Behind one that the job has gone back to there may be some that were asked for as savepoints.
    pub epochs: Vec<Epoch>,
    /// The newest epoch that is committed: one of them.
    pub committed: Option<Epoch>,
    /// The number below which nothing else is.
    pub below: Epoch,
    /// The present life of the job.
    pub generation: Generation,
}

/// What the conductor of a job's epochs wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EpochsAction {
    /// Ask the state manager about the record.
    Record(RequestId, StoreRequest<Arc<EpochsRecord>>),
    /// Send this to the participant; it may be lost.
    To(ParticipantId, ToParticipant),
    /// Have the job begin this life: end what is left of earlier ones, restore everything from that epoch's snapshot
    /// ([`EpochsRecord::snapshot`]), and say [`EpochsEvent::Begun`], [`EpochsEvent::NotBegun`], [`EpochsEvent::Unreadable`] or
    /// [`EpochsEvent::Away`]; one of them has to come, however long it takes. What was prepared for later epochs is void, and what that snapshot holds prepared is committed.
    RollBack {
        /// Which life.
        generation: Generation,
        /// From which epoch; none: with nothing.
        to: Option<Epoch>,
        /// Whether sources are not to read.
        paused: bool,
    },
    /// The job lives: find its participants, and say [`EpochsEvent::Begun`] when all are there, or [`EpochsEvent::Lost`] of who isn't any more.
    Resume {
        /// Which life.
        generation: Generation,
    },
    /// Of the epochs below that number only the snapshots of these are needed, with what they refer to; drop all else of them, which
    /// includes what was saved for epochs that were given up. It may be done late, even after this master's time.
    ///
    /// The last states of participants that have ended belong to no epoch, since they count in all later ones: they are needed while a snapshot that
    /// is kept refers to them, and while their life of the job is the present one.
    Keep(Needed),
    /// Answer a command; with the epoch, if it was about one.
    Reply(CommandId, Result<Option<Epoch>, EpochNotDone>),
    /// Something that a person may want to read.
    Note(EpochsNote),
    /// There are no epochs any more; nothing is done from now on.
    Over(EpochsOver),
}

/// Why there are no epochs any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EpochsOver {
    /// All participants have come to their end, and all that they have done is committed and visible.
    Finished,
    /// Somebody wanted the job stopped: its state is in the snapshot of the committed epoch, and what belongs to that is visible. If it was
    /// stopped in safe mode, what could not be made visible is in the snapshot.
    Stopped,
    /// The job's record is gone.
    Gone,
    /// Another master has taken over.
    Superseded(MasterEpoch),
}

impl fmt::Display for EpochsOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EpochsOver::Finished => f.write_str("the job has come to its end"),
            EpochsOver::Stopped => f.write_str("the job has stopped"),
            EpochsOver::Gone => f.write_str("the job is gone"),
            EpochsOver::Superseded(newest) => write!(f, "master {} has taken over", newest.0),
        }
    }
}
