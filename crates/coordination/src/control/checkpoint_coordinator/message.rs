//! Messages between the checkpoint coordinator and the participants.

use std::fmt;

use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

use crate::control::MasterEpoch;

/// The number of an execution attempt of the whole job, from one rollback to the next. The number
/// increases with each attempt, also across changes of the leader.
///
/// Messages of one generation are ignored in all others, so after a rollback messages of the old
/// attempt have no effect.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// Returns the generation of the next attempt.
    pub const fn next(self) -> Self {
        Generation(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The number of a participant in the checkpoints of a generation: an instance, or a process on
/// behalf of its instances.
///
/// The process that starts a generation assigns the numbers, and uses them to find the participant
/// of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ParticipantId(pub u32);

impl fmt::Display for ParticipantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The acknowledgement of a saved snapshot.
///
/// The job's record contains one acknowledgement per participant and retained checkpoint. An
/// acknowledgement refers to the snapshot and does not contain it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotAck {
    /// The base epoch of an incremental snapshot, or `None` for a full one.
    ///
    /// An increment is applied on top of the newest recorded checkpoint. So it must contain at
    /// least the changes since that checkpoint, and may contain earlier ones. Participants use the
    /// newest epoch that they *know* to be committed as the base
    /// ([`CheckpointParticipant::since`](crate::control::CheckpointParticipant::since)); so the
    /// changes in an aborted increment are part of the next one.
    pub since: Option<Epoch>,
    /// The location of the snapshot, opaque to the coordinator.
    pub place: Vec<u8>,
    /// The number of bytes written.
    pub bytes: u64,
}

/// The kind of an epoch: the reason for which it ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum EpochKind {
    /// The checkpoint interval.
    Usual,
    /// A savepoint: a checkpoint to be retained, with full snapshots if possible, so that it does
    /// not depend on other checkpoints.
    Savepoint,
    /// A change of packing plans: the next attempt, with another plan, starts from exactly this
    /// point. Sources stop reading after the barrier, until this epoch is aborted or another one
    /// ends.
    Handover,
    /// The stop of the job. Sources stop reading after the barrier, until this epoch is aborted or
    /// another one ends.
    Last,
}

impl EpochKind {
    /// Returns true if sources stop reading after the barrier of an epoch of this kind, until the
    /// epoch is aborted or another one ends.
    pub const fn holds_sources(self) -> bool {
        matches!(self, EpochKind::Handover | EpochKind::Last)
    }

    /// Returns true if a checkpoint of this kind is retained until a user releases it.
    pub(super) const fn is_kept(self) -> bool {
        matches!(self, EpochKind::Savepoint | EpochKind::Last)
    }
}

/// A message of the coordinator to a participant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToParticipant {
    /// The epoch of the sending leader.
    pub master: MasterEpoch,
    /// The attempt; participants of other generations ignore the message.
    pub generation: Generation,
    /// The newest committed epoch, if any. Every message contains it, so the loss of some messages
    /// does no harm. It never decreases, and is valid even in a message of an outdated leader.
    pub committed: Option<Epoch>,
    /// The content of the message.
    pub word: CoordinatorMessage,
}

/// The content of a message to a participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CoordinatorMessage {
    /// End this epoch, unless it has already ended: sources send the barrier, and every participant
    /// saves a snapshot. Repeated until the snapshot is reported.
    End(Epoch, EpochKind),
    /// This epoch is aborted: its snapshot is void, and the next snapshot must contain its changes.
    /// Sent once; a participant that misses this message infers the abort from the next one.
    Aborted(Epoch),
    /// Make the output of all epochs up to [`ToParticipant::committed`] visible. Repeated until
    /// confirmed by [`ParticipantReport::CommitDone`].
    Committed,
}

/// A message of a participant to the coordinator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FromParticipant {
    /// The sender.
    pub participant: ParticipantId,
    /// The attempt of the sender.
    pub generation: Generation,
    /// The content of the message.
    pub report: ParticipantReport,
}

/// The content of a participant's message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ParticipantReport {
    /// The snapshot of this epoch is durable.
    Saved(Epoch, SnapshotAck),
    /// The snapshot of this epoch cannot be saved, for this reason.
    CannotSave(Epoch, String),
    /// The participant has completed. Its final snapshot is part of all epochs later than `after`.
    /// It is not part of `after` and earlier epochs, however early this report arrives.
    Ended {
        /// The last epoch for which the participant took a regular snapshot, if any.
        after: Option<Epoch>,
        /// The acknowledgement of the final snapshot.
        receipt: SnapshotAck,
    },
    /// The output of all epochs up to this one is visible.
    CommitDone(Epoch),
}
