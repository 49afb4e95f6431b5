//! Messages between the group scheduler of the leader and the local schedulers of workers, and
//! between workers.
//!
//! A message to a worker is the same for all workers, so it is encoded once. In a steady state it
//! names the next group only: the placement is that of the group before.

mod checked;

use std::sync::Arc;

use ardea_core::MicroBatch;
use serde::{Deserialize, Serialize};

use super::figures::{GroupFigures, RangeFigures};
use super::placement::{PlacementVersion, RangeId, RangePlacement};
use super::stage_graph::{StageGraph, StageId};
use ardea_coordination::control::{Generation, MasterEpoch};
use ardea_coordination::packing::ContainerId;
use checked::batch_number;

/// The number of a group in its execution attempt, from one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct GroupId(pub u64);

impl GroupId {
    pub(super) fn next(self) -> Self {
        GroupId(self.0.saturating_add(1))
    }
}

/// Micro-batches that are planned together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedGroup {
    /// The number of the group.
    pub id: GroupId,
    /// The first micro-batch.
    #[serde(with = "batch_number")]
    pub first: MicroBatch,
    /// The number of micro-batches, at least one.
    #[serde(deserialize_with = "checked::group_size")]
    pub batches: u32,
    /// The only stage to run; `None` for all stages.
    pub only_stage: Option<StageId>,
    /// A change of the plan from the first micro-batch on, opaque to the schedulers.
    pub change: Option<Arc<[u8]>>,
}

impl PlannedGroup {
    /// Returns the last micro-batch.
    pub fn last(&self) -> MicroBatch {
        MicroBatch(self.first.0 + u64::from(self.batches.max(1)) - 1)
    }

    /// Returns true if tasks of the stage are part of the group.
    pub fn has_stage(&self, stage: StageId) -> bool {
        self.only_stage.is_none_or(|only| only == stage)
    }
}

/// The origin of the state of a range that moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MovedState {
    /// The previous worker sends the state, which is that after the last planned micro-batch.
    HandedOver(ContainerId),
    /// The previous worker is lost: the state is in the checkpoint that was taken after the
    /// micro-batch [`RangeMove::after`].
    Restored,
}

/// A partition range that moves to another worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RangeMove {
    /// The version of the placement since which the range is there.
    pub version: PlacementVersion,
    /// The range.
    pub at: RangeId,
    /// The new worker.
    pub to: ContainerId,
    /// The last micro-batch that is part of the state; the new worker continues with the next.
    #[serde(with = "batch_number")]
    pub after: MicroBatch,
    /// The origin of the state.
    pub state: MovedState,
}

/// The starting point of a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupStart {
    /// The stages.
    pub graph: StageGraph,
    /// The places of all ranges. The states of the worker's own ranges have been restored.
    pub placement: Arc<RangePlacement>,
    /// The version of the placement.
    pub version: PlacementVersion,
    /// The last micro-batch that is part of the state of the ranges.
    #[serde(with = "batch_number")]
    pub after: MicroBatch,
    /// The newest group that has ended; the worker takes part in the next one.
    pub group: GroupId,
    /// True if reports contain the work of each range.
    pub reports_ranges: bool,
}

/// A message of the group scheduler to a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToGroupWorker {
    /// The leader epoch of the sender.
    pub master: MasterEpoch,
    /// The execution attempt.
    pub generation: Generation,
    /// The starting point, for a worker that may not have one.
    pub start: Option<Arc<GroupStart>>,
    /// The version of the placement to which `moves` apply.
    pub since: PlacementVersion,
    /// All moves after the version `since`, in their order.
    pub moves: Arc<[RangeMove]>,
    /// The version of the placement after `moves`.
    pub version: PlacementVersion,
    /// New groups, in their order.
    pub groups: Vec<PlannedGroup>,
    /// All places again, in the modes for comparison. Workers ignore it.
    pub complete: Option<Arc<RangePlacement>>,
    /// Outputs of micro-batches up to this one are no longer needed.
    #[serde(with = "batch_number")]
    pub committed: MicroBatch,
    /// The newest group that has ended on all workers.
    pub ended: GroupId,
}

/// A message of a worker to the group scheduler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromGroupWorker {
    /// The progress of the worker. Sent when it has ended a group, and to confirm a placement.
    Progress {
        /// The sender.
        worker: ContainerId,
        /// The attempt; `None` if the worker has no starting point.
        generation: Option<Generation>,
        /// The version of the placement.
        version: PlacementVersion,
        /// The newest group that the worker has received.
        planned: GroupId,
        /// The newest group of which all tasks of the worker's ranges have ended.
        ended: GroupId,
        /// True if a message is missing and must be repeated.
        is_missing: bool,
        /// Totals of the worker.
        figures: GroupFigures,
        /// Totals of its ranges, if the [starting point](GroupStart::reports_ranges) requests them.
        ranges: Vec<RangeFigures>,
    },
    /// Kept outputs that a recovery requires no longer exist, or notices were lost. The worker
    /// repeats it until a new attempt begins.
    CannotRecover {
        /// The sender.
        worker: ContainerId,
        /// The attempt.
        generation: Generation,
        /// The reason, for users.
        reason: String,
    },
}

/// A notice between workers: some producers have ended some micro-batches. It travels behind the
/// data of these micro-batches, on the same connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BatchNotice {
    /// The execution attempt.
    pub generation: Generation,
    /// The version of the placement by which the sender has chosen the receiver.
    pub version: PlacementVersion,
    /// The stage of the producers.
    pub producer: StageId,
    /// The first producing range.
    pub first: u32,
    /// The number of adjacent producing ranges.
    pub count: u32,
    /// The first micro-batch.
    #[serde(with = "batch_number")]
    pub from: MicroBatch,
    /// The last micro-batch.
    #[serde(with = "batch_number")]
    pub through: MicroBatch,
    /// The consuming stage.
    pub consumer: StageId,
    /// The only consuming range that has the data; `None` for all of the receiver.
    pub only: Option<u32>,
}
