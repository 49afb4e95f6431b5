//! The lives of a job with a guarantee, as workers are told of them, and what workers say when one can't go on.
//!
//! A job without a guarantee mends itself piece by piece. One with a guarantee goes back as a whole: every worker ends what it runs of a life,
//! and begins the next one from one epoch's snapshot, while processes, connections and threads stay.

use crate::packing::ContainerId;
use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

use crate::control::{AttemptFailure, Generation, ParticipantId};

/// A life of a job: what all its instances begin from. Two of one generation are the same life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Life {
    /// Which: later ones have greater numbers. It tells apart whatever travels between workers, too.
    pub generation: Generation,
    /// The committed epoch that it begins from; none: it begins with nothing.
    pub from: Option<Epoch>,
    /// The life in which the snapshot of that epoch was taken, which is a part of the snapshot's name. Says nothing where there is none to
    /// begin from, nor to those who have begun already.
    pub taken_in: Generation,
}

/// Why a worker can't go on with a life, or not begin it. The job goes back to what is committed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LifeEnd {
    /// An instance has failed, or can't begin; or something that was under way to another worker is lost.
    Failed(AttemptFailure),
    /// The snapshot that it should begin from is damaged, or parts of it are missing.
    Unreadable(String),
    /// What it should begin from can't be had at the moment: the place of the snapshot can't be read, or somebody still holds a file. That
    /// is no failure of the job.
    Away(String),
}

impl ParticipantId {
    /// A container's worker, which speaks for all instances there.
    pub const fn of(container: ContainerId) -> Self {
        ParticipantId(container.0)
    }

    /// The container of a participant that is a worker.
    pub const fn container(self) -> ContainerId {
        ContainerId(self.0)
    }
}
