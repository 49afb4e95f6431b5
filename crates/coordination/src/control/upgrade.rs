//! Upgrade of a job to another program. The progress stored in the job's record is authoritative.
//!
//! ```text
//! Stopping    the old program runs, and is to stop with a final checkpoint
//!   │       the checkpoint is committed: all instances stop
//! Stopped       nothing runs; one write replaces the old job by the new one with that state
//!   │
//! Starting    the new program runs, has committed nothing yet ──▶ Over: Upgraded, once it has
//!   │       it fails, or takes too long
//! RollingBack  nothing runs; one write restores the old job with that state ──▶ Over: RolledBack
//! ```
//!
//! Each state is stored before its actions are taken, and is all that a later leader needs to
//! continue. Both programs are complete jobs with submissions of their own, so their data cannot be
//! confused. The old job is first stopped with a final checkpoint, since the new job would publish
//! output after that checkpoint again. The new job publishes nothing before it has committed an
//! epoch, so until then the old job can resume from its final checkpoint.

mod replacement;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{JobDemand, PackingConfig, PackingPlan};
use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

pub use replacement::{PredecessorState, Replacement};

use crate::control::{CheckpointRecord, Generation, JobDefinition};

/// The attempt number recorded for the checkpoint that a job has started with, which no attempt of
/// the job has taken.
pub const IMPORTED: Generation = Generation(0);

/// A submitted job that may replace another job of the same name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Successor {
    /// The definition of the job.
    pub definition: JobDefinition,
    /// The requested vertices and resources.
    pub demand: JobDemand,
    /// The configuration of the packing.
    pub packing: PackingConfig,
}

/// The final state of a stopped job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FinalState {
    /// The execution attempt that took the final checkpoint.
    pub generation: Generation,
    /// The epoch of the final checkpoint.
    pub epoch: Epoch,
}

impl FinalState {
    /// Returns the state of the newest committed epoch, or `None` if no epoch is committed.
    pub fn of(record: &CheckpointRecord) -> Option<Self> {
        let epoch = record.committed?;
        let generation = record.checkpoint(epoch)?.generation;
        Some(FinalState { generation, epoch })
    }
}

/// A request to upgrade a job to another program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UpgradeOrder {
    /// The new job; its package is in the package store.
    pub next: Successor,
    /// The submission number that the old job gets if it has to be restored.
    pub back: u64,
    /// The time in which the new program must commit its first epoch. A new leader starts this time
    /// again.
    pub commit_timeout: Duration,
}

/// The progress of an upgrade.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Upgrade {
    /// The job is to stop with a final checkpoint; then another job replaces it.
    Stopping(Arc<UpgradeOrder>),
    /// The job has stopped, with this final state, if any.
    Stopped(Arc<UpgradeOrder>, Option<FinalState>),
    /// The job has replaced another, and has not committed an epoch yet.
    Starting(Arc<Predecessor>),
    /// The job is rolled back to its predecessor, for this reason.
    RollingBack(Arc<Predecessor>, String),
    /// The upgrade is complete.
    Over(UpgradeEnd),
}

/// The previous job of an upgrade, which is restored on rollback.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Predecessor {
    /// The previous job, as it was when it stopped.
    pub job: Successor,
    /// The packing plan of the job, which is reused on rollback. If it resulted from updates or
    /// rescales, a new packing of the job may fail.
    pub plan: Option<Arc<PackingPlan>>,
    /// The final state of the job, if any.
    pub state: Option<FinalState>,
    /// The submission number that the job gets if it has to be restored.
    pub back: u64,
    /// The time in which the new program must commit its first epoch.
    pub commit_timeout: Duration,
}

/// The outcome of an upgrade.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum UpgradeEnd {
    /// The new program runs.
    Upgraded {
        /// The submission of the old program.
        from: u64,
    },
    /// The old program runs again, resumed from its final checkpoint.
    RolledBack {
        /// The submission of the failed program.
        tried: u64,
        /// The reason of the rollback.
        why: String,
    },
}

impl Upgrade {
    /// Returns true if the upgrade is neither complete nor rolled back.
    pub fn is_under_way(&self) -> bool {
        !matches!(self, Upgrade::Over(_))
    }

    /// Returns true if another job replaces this one as soon as none of its instances run.
    pub fn is_replaced(&self) -> bool {
        matches!(self, Upgrade::Stopped(..) | Upgrade::RollingBack(..))
    }

    /// Returns the upgrade after the job has stopped with `state`.
    pub(crate) fn left(self, state: Option<FinalState>) -> Self {
        match self {
            Upgrade::Stopping(order) => Upgrade::Stopped(order, state),
            other => other,
        }
    }

    /// Returns the state as one word, for users and programs.
    pub fn word(&self) -> &'static str {
        match self {
            Upgrade::Stopping(_) => "stopping",
            Upgrade::Stopped(..) => "stopped",
            Upgrade::Starting(_) => "starting",
            Upgrade::RollingBack(..) => "returning",
            Upgrade::Over(UpgradeEnd::Upgraded { .. }) => "upgraded",
            Upgrade::Over(UpgradeEnd::RolledBack { .. }) => "rolled_back",
        }
    }

    /// Returns the reason of the rollback, if the upgrade was or is being rolled back.
    pub fn why(&self) -> Option<&str> {
        match self {
            Upgrade::RollingBack(_, why) | Upgrade::Over(UpgradeEnd::RolledBack { why, .. }) => {
                Some(why)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upgrade::Stopping(_) => {
                f.write_str("it stops with a final checkpoint, then the new program starts")
            }
            Upgrade::Stopped(..) => f.write_str("it has stopped, and the new program starts"),
            Upgrade::Starting(_) => {
                f.write_str("its program is new, and has committed nothing yet")
            }
            Upgrade::RollingBack(_, why) => {
                write!(
                    f,
                    "it is rolled back to the previous program, since the new one failed: {why}"
                )
            }
            Upgrade::Over(UpgradeEnd::Upgraded { from }) => {
                write!(f, "it was upgraded from submission {from:x}")
            }
            Upgrade::Over(UpgradeEnd::RolledBack { tried, why }) => {
                write!(
                    f,
                    "the upgrade to submission {tried:x} was rolled back: {why}"
                )
            }
        }
    }
}
