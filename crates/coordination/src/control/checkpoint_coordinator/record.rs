//! The stored checkpoint record of a job, which contains all that a later leader needs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

use super::message::{Generation, ParticipantId, SnapshotAck};
use crate::control::{ExecutionAttempt, IMPORTED, JobRef, MasterEpoch, PlanVersion};

/// The number of epoch numbers that a leader reserves at once.
const NUMBERS_AHEAD: u64 = 64;

/// The stored checkpoint record of a job. Only the job's leaders write it, each time against the
/// version that they have observed.
///
/// The acknowledgements of the retained checkpoints determine its size. A driver may store them
/// elsewhere, durably and before it writes the record, and store a reference in the record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// The job.
    pub job: JobRef,
    /// The leader that wrote this record.
    pub master: MasterEpoch,
    /// An upper bound of the epoch numbers that any leader has used. Leaders reserve numbers in
    /// blocks. A new leader, which does not know the last requests of its predecessor, therefore
    /// never reuses a number.
    pub numbers: Epoch,
    /// The current attempt; zero if none has started yet.
    pub generation: Generation,
    /// True if the attempt is known to have started: all participants were restored.
    pub begun: bool,
    /// The epoch that the attempt was restored from, or `None` if it started without state.
    pub restored_from: Option<Epoch>,
    /// The packing plan of the attempt, if the driver uses plans. It does not change during the
    /// attempt.
    pub plan: PlanVersion,
    /// The newest committed epoch.
    pub committed: Option<Epoch>,
    /// The retained checkpoints, oldest first, including that of the committed epoch.
    pub checkpoints: Vec<Arc<RecordedCheckpoint>>,
    /// The number of the latest consecutive attempts that failed before they recorded an epoch.
    pub failures: u32,
    /// The reason of the safe mode, in which the job's sources are paused until a user decides;
    /// `None` outside of safe mode.
    pub safe_mode: Option<SafeMode>,
    /// The progress of stopping the job.
    pub stop: StopState,
}

impl CheckpointRecord {
    /// Creates the record of a job without epochs.
    pub fn new(job: JobRef) -> Self {
        CheckpointRecord {
            job,
            master: MasterEpoch::default(),
            numbers: Epoch(0),
            generation: Generation(0),
            begun: false,
            restored_from: None,
            plan: PlanVersion::default(),
            committed: None,
            checkpoints: Vec::new(),
            failures: 0,
            safe_mode: None,
            stop: StopState::No,
        }
    }

    /// Creates the record of a job that starts with copied state, as the committed checkpoint of
    /// `epoch`.
    pub fn imported(job: JobRef, epoch: Epoch) -> Self {
        let checkpoint = RecordedCheckpoint {
            epoch,
            generation: IMPORTED,
            over: None,
            is_savepoint: false,
            snapshots: BTreeMap::new(),
        };
        CheckpointRecord {
            numbers: epoch,
            committed: Some(epoch),
            checkpoints: vec![Arc::new(checkpoint)],
            ..CheckpointRecord::new(job)
        }
    }

    /// Returns the checkpoint of `epoch`, if it is retained.
    pub fn checkpoint(&self, epoch: Epoch) -> Option<&RecordedCheckpoint> {
        let found = self.checkpoints.iter().find(|kept| kept.epoch == epoch);
        found.map(|checkpoint| &**checkpoint)
    }

    /// Returns the current attempt, as sent to workers.
    pub fn attempt(&self) -> ExecutionAttempt {
        let from = self.restored_from;
        let taken_in = from.and_then(|epoch| Some(self.checkpoint(epoch)?.generation));
        ExecutionAttempt {
            generation: self.generation,
            from,
            taken_in: taken_in.unwrap_or_default(),
        }
    }

    /// Returns true if the sources of the current attempt must not read.
    pub fn is_paused(&self) -> bool {
        self.safe_mode.is_some() || self.stop != StopState::No
    }

    pub(super) fn take_numbers(&mut self, from: Epoch) {
        self.numbers = self.numbers.max(Epoch(from.0 + NUMBERS_AHEAD));
    }

    /// Changes the record to a new attempt from the committed epoch, with this plan if one is
    /// given.
    pub(super) fn roll_back(&mut self, plan: Option<PlanVersion>) {
        self.generation = self.generation.next();
        self.begun = false;
        self.restored_from = self.committed;
        self.plan = plan.unwrap_or(self.plan);
    }

    /// Goes back to the checkpoint of the epoch `to`, or to the beginning. Later checkpoints are
    /// removed, except savepoints.
    pub(super) fn go_back_to(&mut self, to: Option<Epoch>) {
        self.checkpoints
            .retain(|kept| Some(kept.epoch) <= to || kept.is_savepoint);
        self.committed = to;
    }

    /// Removes all checkpoints except that of the committed epoch, the newest regular ones, `count`
    /// in total, and all savepoints.
    pub(super) fn keep_newest(&mut self, count: usize) {
        let usual = self.checkpoints.iter().filter(|kept| !kept.is_savepoint);
        let surplus = usual.count().saturating_sub(count);
        let (mut seen, committed) = (0, self.committed);
        self.checkpoints.retain(|kept| {
            let is_usual = !kept.is_savepoint;
            seen += usize::from(is_usual);
            !is_usual || seen > surplus || Some(kept.epoch) == committed
        });
    }
}

/// The progress of stopping a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum StopState {
    /// Not stopping.
    #[default]
    No,
    /// The committed epoch was the last one. The job stops when all participants have confirmed
    /// this commit.
    WhenHeard,
    /// The job was stopped in safe mode.
    AsIs,
}

/// A recorded checkpoint, whose epoch is permanently committed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordedCheckpoint {
    /// The epoch.
    pub epoch: Epoch,
    /// The attempt that has taken the checkpoint.
    pub generation: Generation,
    /// The epoch of the checkpoint that the increments are based on, if any.
    pub over: Option<Epoch>,
    /// True if the checkpoint is retained until a user releases it.
    pub is_savepoint: bool,
    /// The snapshots of the participants.
    pub snapshots: BTreeMap<ParticipantId, RecordedSnapshot>,
}

impl RecordedCheckpoint {
    /// Returns the number of bytes written for the checkpoint, without data shared with earlier
    /// checkpoints.
    pub fn bytes(&self) -> u64 {
        self.snapshots
            .values()
            .map(|snapshot| snapshot.receipt.bytes)
            .sum()
    }
}

/// The snapshot of one participant in a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordedSnapshot {
    /// The acknowledgement of the snapshot.
    pub receipt: SnapshotAck,
    /// True if this is the final snapshot of a completed participant. When restored, the
    /// participant completes and reports its completion again.
    pub has_ended: bool,
}

/// The reason of a job's safe mode, in which its sources are paused until a user decides; see
/// [`CheckpointCommand`](crate::control::CheckpointCommand) for the ways out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SafeMode {
    /// The job fails repeatedly without committing an epoch in between.
    KeepsFailing {
        /// The number of consecutive failures.
        times: u32,
        /// The last failure.
        last: String,
    },
    /// The checkpoint to restore from cannot be read. There is no older checkpoint, or its restore
    /// would publish results twice.
    Unreadable {
        /// The epoch of the unreadable checkpoint.
        epoch: Option<Epoch>,
        /// The error.
        why: String,
    },
    /// The job has failed in a way that another attempt would repeat.
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
            } => write!(f, "the checkpoint of epoch {number} can't be read: {why}"),
            SafeMode::Unreadable { epoch: None, why } => {
                write!(f, "the job can't start: {why}")
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
