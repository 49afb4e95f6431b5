//! What is said between the conductor of a job's epochs and those who take part.

use std::fmt;

use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

use crate::control::MasterEpoch;

/// One life of the whole dataflow, between two rollbacks. Each has a greater number than all before it, whoever was master.
///
/// What is said in one generation is ignored in all others: after a rollback nothing of the old one counts.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// The life after this one.
    pub const fn next(self) -> Self {
        Generation(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Who takes part in the epochs of a generation: an instance, or a process that speaks for its own.
///
/// Whoever begins a generation numbers them, so that it finds again whom a receipt is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ParticipantId(pub u32);

impl fmt::Display for ParticipantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a participant gets for a cut that it has saved.
///
/// It becomes part of the job's record, as often as there are participants and snapshots kept: it names the cut, and doesn't hold it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Receipt {
    /// The epoch since whose end the cut holds what has changed; none if it holds everything.
    ///
    /// An increment is laid over the newest recorded snapshot. So it may hold what has changed since an earlier one, but never
    /// only since a later one: participants choose the newest epoch that they *know* to be committed
    /// ([`EpochsAgent::since`](crate::control::EpochsAgent::since)), and so what was in an increment that was given up is in the next one again.
    pub since: Option<Epoch>,
    /// Where the cut is; only who wrote it and who restores it understand this.
    pub place: Vec<u8>,
    /// How much was written, in bytes.
    pub bytes: u64,
}

/// Why an epoch ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum EpochKind {
    /// Because it is time.
    Usual,
    /// Because somebody wants to keep its snapshot: it should hold everything, so that it needs no other.
    Savepoint,
    /// Because another life of the job, arranged by another plan, begins from exactly here: sources read nothing behind it, until they hear
    /// that it was given up or that another one ends.
    Handover,
    /// Because the job is to stop: sources read nothing behind it, until they hear that it was given up or that another one ends.
    Last,
}

impl EpochKind {
    /// Whether sources read nothing behind it, until they hear that it was given up or that another one ends.
    pub const fn holds_sources(self) -> bool {
        matches!(self, EpochKind::Handover | EpochKind::Last)
    }

    /// Whether its snapshot is kept until somebody wants it forgotten.
    pub(super) const fn is_kept(self) -> bool {
        matches!(self, EpochKind::Savepoint | EpochKind::Last)
    }
}

/// A word of the conductor to a participant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToParticipant {
    /// Who says it.
    pub master: MasterEpoch,
    /// To whom: participants of other generations ignore it.
    pub generation: Generation,
    /// The newest epoch that is committed, if there is one. It is so with all words, and so with all that are lost, doubled or late:
    /// it only ever grows, and is true whoever says it.
    pub committed: Option<Epoch>,
    /// What it is about.
    pub word: EpochWord,
}

/// What a word is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EpochWord {
    /// End this epoch, unless you have: sources send its marker, and everybody saves the cut. Comes again until the cut is reported.
    End(Epoch, EpochKind),
    /// This epoch is given up: its cut is worth nothing, and what it held has to be in the next one. Said once; who misses it learns the
    /// same from the next word.
    GivenUp(Epoch),
    /// Make what belongs to epochs up to the committed one visible. Comes again until it is [`Report::Heard`].
    Committed,
}

/// A word of a participant to the conductor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FromParticipant {
    /// Who says it.
    pub participant: ParticipantId,
    /// In which life of the job.
    pub generation: Generation,
    /// What it says.
    pub report: Report,
}

/// What a participant has to say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Report {
    /// The cut at this epoch's end is durable.
    Saved(Epoch, Receipt),
    /// The cut at this epoch's end can't be saved, for this reason.
    CannotSave(Epoch, String),
    /// It has come to its end for good. Its last state counts in all epochs later than `after`, which is the last one that it has taken a cut of
    /// its own for; for that one and those before it the end counts for nothing, however early it is heard of.
    Ended {
        /// The last epoch with a cut of its own.
        after: Option<Epoch>,
        /// Its last state.
        receipt: Receipt,
    },
    /// All that belongs to epochs up to this one is visible.
    Heard(Epoch),
}
