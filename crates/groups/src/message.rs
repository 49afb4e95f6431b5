//! Messages between the group scheduler of the leader and the local schedulers of workers, and
//! between workers.
//!
//! A message to a worker is the same for all workers, so it is encoded once. In a steady state it
//! names the next group only: the placement is that of the group before.

use std::sync::Arc;

use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

use super::placement::{PlacementVersion, RangeId, RangePlacement};
use super::stage_graph::{StageGraph, StageId};
use ardea_coordination::control::{Generation, MasterEpoch};
use ardea_coordination::packing::ContainerId;

/// The number of a group in its execution attempt, from one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct GroupId(pub u64);

impl GroupId {
    pub(super) fn next(self) -> Self {
        GroupId(self.0 + 1)
    }
}

/// Epochs that are planned together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedGroup {
    /// The number of the group.
    pub id: GroupId,
    /// The first epoch.
    pub first: Epoch,
    /// The number of epochs, at least one.
    pub epochs: u32,
    /// The only stage to run; `None` for all stages.
    pub only_stage: Option<StageId>,
    /// A change of the plan from the first epoch on, opaque to the schedulers.
    pub change: Option<Arc<[u8]>>,
}

impl PlannedGroup {
    /// Returns the last epoch.
    pub fn last(&self) -> Epoch {
        Epoch(self.first.0 + u64::from(self.epochs.max(1)) - 1)
    }

    /// Returns true if tasks of the stage are part of the group.
    pub fn has_stage(&self, stage: StageId) -> bool {
        self.only_stage.is_none_or(|only| only == stage)
    }
}

/// The origin of the state of a range that moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MovedState {
    /// The previous worker sends the state, which is that after the last planned epoch.
    HandedOver(ContainerId),
    /// The previous worker is lost: the state is in the checkpoint of the epoch
    /// [`RangeMove::after`].
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
    /// The last epoch that is part of the state; the new worker continues with the next.
    pub after: Epoch,
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
    /// The last epoch that is part of the state of the ranges.
    pub after: Epoch,
    /// The newest group that has ended; the worker takes part in the next one.
    pub group: GroupId,
}

/// A message of the group scheduler to a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToGroupWorker {
    /// The epoch of the sending leader.
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
    /// A committed epoch: outputs of epochs up to this one are no longer needed.
    pub committed: Epoch,
    /// The newest group that has ended on all workers.
    pub ended: GroupId,
}

/// Totals of a worker since the start of its attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupFigures {
    /// The number of tasks that were run.
    pub tasks: u64,
    /// The number of tasks that were run again for a lost worker.
    pub tasks_rerun: u64,
    /// The number of kept outputs that were sent again, each of one producer, epoch and consumer.
    pub blocks_reused: u64,
    /// The number of dropped duplicates, each of one producer, epoch and consumer.
    pub duplicates_dropped: u64,
    /// The time in which the worker had no planned task left.
    pub starved_nanos: u64,
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
    },
    /// Kept outputs that a recovery requires no longer exist, or notices were lost.
    CannotRecover {
        /// The sender.
        worker: ContainerId,
        /// The attempt.
        generation: Generation,
        /// The reason, for users.
        reason: String,
    },
}

/// A notice between workers: some producers have ended some epochs. It travels behind the data of
/// these epochs, on the same connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EpochNotice {
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
    /// The first epoch.
    pub from: Epoch,
    /// The last epoch.
    pub through: Epoch,
    /// The consuming stage.
    pub consumer: StageId,
    /// The only consuming range that has the data; `None` for all of the receiver.
    pub only: Option<u32>,
}
