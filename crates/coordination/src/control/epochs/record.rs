//! What is stored of a job's epochs: all that a successor needs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

use super::message::{Generation, ParticipantId, Receipt};
use crate::control::{BROUGHT, JobRef, Life, MasterEpoch, PlanVersion};

/// How many numbers of epochs a master takes at once.
const NUMBERS_AHEAD: u64 = 64;

/// What is stored of a job's epochs; written by its masters only, each time against the version that they have seen.
///
/// Its size is that of the receipts of the snapshots kept. A driver may put those elsewhere, and store where, as long as they are durable
/// before the record is written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EpochsRecord {
    /// The job.
    pub job: JobRef,
    /// The master that wrote this.
    pub master: MasterEpoch,
    /// No master has ended an epoch of a greater number. Numbers are taken some at a time, so that a successor, who doesn't know what its
    /// predecessor has asked for, never uses one of them again.
    pub numbers: Epoch,
    /// The present life of the job; zero if it has not begun yet.
    pub generation: Generation,
    /// Whether that life is known to have begun: all participants were restored.
    pub begun: bool,
    /// The epoch from which that life was restored; none if it began with nothing.
    pub restored_from: Option<Epoch>,
    /// The plan that this life is arranged by, if whoever drives it has plans: it stays so while the life lasts.
    pub plan: PlanVersion,
    /// The newest epoch that is committed.
    pub committed: Option<Epoch>,
    /// The snapshots that are kept, the oldest first. The committed epoch's is one of them.
    pub snapshots: Vec<Arc<RecordedSnapshot>>,
    /// How many lives in a row have failed before an epoch of theirs was recorded.
    pub failures: u32,
    /// Why the job's sources are paused until somebody decides.
    pub safe_mode: Option<SafeMode>,
    /// Whether the job stops.
    pub stop: StopState,
}

impl EpochsRecord {
    /// The record of a job without epochs.
    pub fn new(job: JobRef) -> Self {
        EpochsRecord {
            job,
            master: MasterEpoch::default(),
            numbers: Epoch(0),
            generation: Generation(0),
            begun: false,
            restored_from: None,
            plan: PlanVersion::default(),
            committed: None,
            snapshots: Vec::new(),
            failures: 0,
            safe_mode: None,
            stop: StopState::No,
        }
    }

    /// The record of a job that has no epochs of its own yet, and begins with the state of one that was brought from elsewhere.
    pub fn brought(job: JobRef, epoch: Epoch) -> Self {
        let snapshot = RecordedSnapshot {
            epoch,
            generation: BROUGHT,
            over: None,
            is_savepoint: false,
            cuts: BTreeMap::new(),
        };
        EpochsRecord {
            numbers: epoch,
            committed: Some(epoch),
            snapshots: vec![Arc::new(snapshot)],
            ..EpochsRecord::new(job)
        }
    }

    /// The snapshot of an epoch, if it is kept.
    pub fn snapshot(&self, epoch: Epoch) -> Option<&RecordedSnapshot> {
        let found = self.snapshots.iter().find(|kept| kept.epoch == epoch);
        found.map(|snapshot| &**snapshot)
    }

    /// The present life, as those are told of it who begin it.
    pub fn life(&self) -> Life {
        let from = self.restored_from;
        let taken_in = from.and_then(|epoch| Some(self.snapshot(epoch)?.generation));
        Life {
            generation: self.generation,
            from,
            taken_in: taken_in.unwrap_or_default(),
        }
    }

    /// Whether the sources of the present generation don't read.
    pub fn is_paused(&self) -> bool {
        self.safe_mode.is_some() || self.stop != StopState::No
    }

    pub(super) fn take_numbers(&mut self, from: Epoch) {
        self.numbers = self.numbers.max(Epoch(from.0 + NUMBERS_AHEAD));
    }

    /// A new life, from the committed epoch, arranged by that plan if one is known.
    pub(super) fn roll_back(&mut self, plan: Option<PlanVersion>) {
        self.generation = self.generation.next();
        self.begun = false;
        self.restored_from = self.committed;
        self.plan = plan.unwrap_or(self.plan);
    }

    /// Goes back to an earlier snapshot, or to the beginning: the later ones are gone, except savepoints, which are nobody's past any more.
    pub(super) fn go_back_to(&mut self, to: Option<Epoch>) {
        self.snapshots
            .retain(|kept| Some(kept.epoch) <= to || kept.is_savepoint);
        self.committed = to;
    }

    /// Keeps the committed epoch's snapshot, so many before it, and savepoints.
    pub(super) fn keep_newest(&mut self, count: usize) {
        let usual = self.snapshots.iter().filter(|kept| !kept.is_savepoint);
        let surplus = usual.count().saturating_sub(count);
        let (mut seen, committed) = (0, self.committed);
        self.snapshots.retain(|kept| {
            let is_usual = !kept.is_savepoint;
            seen += usize::from(is_usual);
            !is_usual || seen > surplus || Some(kept.epoch) == committed
        });
    }
}

/// Whether a job stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum StopState {
    /// It doesn't.
    #[default]
    No,
    /// The committed epoch was its last one: it stops when everybody has heard of that.
    WhenHeard,
    /// It has stopped, in safe mode.
    AsIs,
}

/// A snapshot that is recorded: the epoch is committed, whatever happens next.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordedSnapshot {
    /// Its epoch.
    pub epoch: Epoch,
    /// The life of the job that it was taken of.
    pub generation: Generation,
    /// The snapshot that its increments are laid over.
    pub over: Option<Epoch>,
    /// Whether it is kept until somebody wants it forgotten.
    pub is_savepoint: bool,
    /// What the participants have saved.
    pub cuts: BTreeMap<ParticipantId, RecordedCut>,
}

impl RecordedSnapshot {
    /// How much was written for it; what it has in common with earlier ones is not counted.
    pub fn bytes(&self) -> u64 {
        self.cuts.values().map(|cut| cut.receipt.bytes).sum()
    }
}

/// What one participant has saved of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordedCut {
    /// Its receipt.
    pub receipt: Receipt,
    /// Whether it had come to its end: this is its last state. When it is restored it finds that it has ended, and says so again.
    pub has_ended: bool,
}

/// Why a job's sources are paused until somebody decides: [`EpochsCommand`](crate::control::EpochsCommand) has the ways out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SafeMode {
    /// It fails again and again, and no epoch gets committed in between.
    KeepsFailing {
        /// How often in a row.
        times: u32,
        /// Why, the last time.
        last: String,
    },
    /// The snapshot that it should go back to can't be read, and another one would not do: it is older, so that results would be
    /// published twice, or there is none.
    Unreadable {
        /// The snapshot's epoch.
        epoch: Option<Epoch>,
        /// What is wrong with it.
        why: String,
    },
    /// It has failed in a way that another attempt does not change.
    Permanent {
        /// The error.
        why: String,
    },
}

impl fmt::Display for SafeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SafeMode::KeepsFailing { times, last } => {
                write!(f, "the job has failed {times} times in a row: {last}")
            }
            SafeMode::Unreadable {
                epoch: Some(Epoch(number)),
                why,
            } => write!(f, "the snapshot of epoch {number} can't be read: {why}"),
            SafeMode::Unreadable { epoch: None, why } => {
                write!(f, "the job can't begin: {why}")
            }
            SafeMode::Permanent { why } => {
                write!(
                    f,
                    "the job has failed, and another attempt would fail in the same way: {why}"
                )
            }
        }
    }
}
