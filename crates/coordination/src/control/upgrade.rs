//! How the program of a job is followed by another: what stands of that in the job's record, which is where its truth lies.
//!
//! ```text
//! Leaving    the old program runs, and is to end a last epoch
//!    │       that is committed: all of it stops
//! Left       nothing runs; in one write the new program's job takes the place of the old one's, with that epoch's state
//!    │
//! Proving    the new program runs, and has committed nothing yet ──▶ Over: Upgraded, when it has
//!    │       it fails, or takes too long
//! Returning  nothing runs; in one write the old program's job takes the place, with the same state ──▶ Over: RolledBack
//! ```
//!
//! Each of these is stored before it is acted on, and is all that a later master needs to go on. Both programs are whole jobs, with
//! submissions of their own, so nothing of one is ever taken for something of the other. The old one is stopped first, with a last epoch:
//! what it would publish behind that the new one would publish again. Until the new one has committed an epoch it has published nothing,
//! and the old one can go on from where it stopped.

mod following;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{JobDemand, PackingConfig, PackingPlan};
use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

pub use following::{Following, Left};

use crate::control::{EpochsRecord, Generation, JobDefinition};

/// In the record of a job that began with state from elsewhere, the life in which that state was taken: none of its own.
pub const BROUGHT: Generation = Generation(0);

/// A job that may take the place of another of its name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Successor {
    /// What it is.
    pub definition: JobDefinition,
    /// What it asks for.
    pub demand: JobDemand,
    /// Within what it is packed.
    pub packing: PackingConfig,
}

/// The state that a job has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeftState {
    /// The life in which it was taken.
    pub generation: Generation,
    /// Its epoch.
    pub epoch: Epoch,
}

impl LeftState {
    /// That of the newest committed epoch; none if nothing is committed.
    pub fn of(record: &EpochsRecord) -> Option<Self> {
        let epoch = record.committed?;
        let generation = record.snapshot(epoch)?.generation;
        Some(LeftState { generation, epoch })
    }
}

/// What somebody wants to follow a job's program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UpgradeOrder {
    /// What is to follow; its package is in the store.
    pub next: Successor,
    /// The submission that the old program gets if it has to come back.
    pub back: u64,
    /// How long the new program may take to commit its first epoch; a new master begins to count anew.
    pub patience: Duration,
}

/// How far the program of a job has been followed by another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Upgrade {
    /// The job is to stop with a last epoch, and to be followed.
    Leaving(Arc<UpgradeOrder>),
    /// It has stopped, with this state.
    Left(Arc<UpgradeOrder>, Option<LeftState>),
    /// The job has followed another, and has committed nothing yet.
    Proving(Arc<Predecessor>),
    /// It gives way to the one before, for this reason.
    Returning(Arc<Predecessor>, String),
    /// Nothing is to be done any more.
    Over(UpgradeEnd),
}

/// The job before, which comes back if need be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Predecessor {
    /// As it was.
    pub job: Successor,
    /// The plan that it ran by, which it comes back by: what an update or a rescale has made of a plan can perhaps not be packed anew.
    pub plan: Option<Arc<PackingPlan>>,
    /// The state that it has left.
    pub state: Option<LeftState>,
    /// The submission that it gets if it has to come back.
    pub back: u64,
    /// How long the new program may take to commit its first epoch.
    pub patience: Duration,
}

/// How an upgrade has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum UpgradeEnd {
    /// The program that runs is the new one; that was the submission of the old one.
    Upgraded {
        /// The old one's.
        from: u64,
    },
    /// The program that runs is the old one, from where it stopped.
    RolledBack {
        /// The submission of the one that did not come up.
        tried: u64,
        /// Why it did not.
        why: String,
    },
}

impl Upgrade {
    /// Whether something is still to be done.
    pub fn is_under_way(&self) -> bool {
        !matches!(self, Upgrade::Over(_))
    }

    /// Whether another job takes the place of this one when nothing of it runs any more.
    pub fn gives_way(&self) -> bool {
        matches!(self, Upgrade::Left(..) | Upgrade::Returning(..))
    }

    /// The same when the job has stopped, with this state.
    pub(crate) fn left(self, state: Option<LeftState>) -> Self {
        match self {
            Upgrade::Leaving(order) => Upgrade::Left(order, state),
            other => other,
        }
    }

    /// In a word, for people and programs.
    pub fn word(&self) -> &'static str {
        match self {
            Upgrade::Leaving(_) => "stopping",
            Upgrade::Left(..) => "stopped",
            Upgrade::Proving(_) => "starting",
            Upgrade::Returning(..) => "returning",
            Upgrade::Over(UpgradeEnd::Upgraded { .. }) => "upgraded",
            Upgrade::Over(UpgradeEnd::RolledBack { .. }) => "rolled_back",
        }
    }

    /// Why the new program is not the one that runs, if that is so.
    pub fn why(&self) -> Option<&str> {
        match self {
            Upgrade::Returning(_, why) | Upgrade::Over(UpgradeEnd::RolledBack { why, .. }) => {
                Some(why)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upgrade::Leaving(_) => {
                f.write_str("it ends a last epoch, then another program follows")
            }
            Upgrade::Left(..) => f.write_str("it has stopped, and another program follows"),
            Upgrade::Proving(_) => f.write_str("its program is new, and has committed nothing yet"),
            Upgrade::Returning(_, why) => {
                write!(
                    f,
                    "the program before comes back, since the new one failed: {why}"
                )
            }
            Upgrade::Over(UpgradeEnd::Upgraded { from }) => {
                write!(f, "its program has followed that of submission {from:x}")
            }
            Upgrade::Over(UpgradeEnd::RolledBack { tried, why }) => {
                write!(
                    f,
                    "submission {tried:x} should have followed, and did not come up: {why}"
                )
            }
        }
    }
}
