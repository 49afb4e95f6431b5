//! Recovery from the loss of a worker: its ranges are restored by the others, which go on.

use std::sync::Arc;
use std::time::Duration;

use super::interface::{BatchMode, GroupRollback};
use super::{GroupScheduler, Restoring, SchedulerAction, SchedulerPhase};
use crate::message::MovedState;
use crate::placement::RangeId;
use ardea_coordination::packing::ContainerId;

impl GroupScheduler {
    pub(super) fn lose(
        &mut self,
        now: Duration,
        worker: ContainerId,
        why: String,
        actions: &mut Vec<SchedulerAction>,
    ) {
        if !self.remove(worker) || self.phase != SchedulerPhase::Running {
            return;
        }
        let committed = self.committed;
        for former in self.former.extract_if(.., |former| former.worker == worker) {
            self.missing.push((former.stage, former.through));
        }
        let lost = self.placement.ranges_of(worker);
        // A state that was on its way from the lost worker may not have arrived. Its range is
        // restored where it is, unless it has.
        let unfinished = self.handovers.iter().filter(|moved| {
            moved.state == MovedState::HandedOver(worker)
                && self.placement.worker(moved.at) == Some(moved.to)
        });
        let unfinished: Vec<(RangeId, ContainerId)> =
            unfinished.map(|moved| (moved.at, moved.to)).collect();
        self.handovers
            .retain(|moved| moved.state != MovedState::HandedOver(worker) && moved.to != worker);
        if lost.is_empty() && unfinished.is_empty() {
            return;
        }
        let affected = lost.iter().chain(unfinished.iter().map(|(at, _)| at));
        if let Some(why) = self.obstacle(affected.copied(), why) {
            return self.roll_back(why, actions);
        }
        let restored =
            self.placement
                .deal_out(&lost, &self.survivors(), self.config.has_parallel_recovery);
        let moves: Vec<_> = restored
            .into_iter()
            .chain(unfinished)
            .map(|(at, to)| (at, to, committed, MovedState::Restored))
            .collect();
        self.change_placement(&moves);
        self.restoring = Some(Restoring {
            after: committed,
            until: match self.config.mode {
                // Some stages have not run the last planned micro-batch yet.
                BatchMode::BarrierPerBatch => self.last_batch.next(),
                BatchMode::Groups | BatchMode::Pipelined => self.last_batch,
            },
        });
        // Workers report the end of a group again when their new ranges have ended it.
        for member in self.members.values_mut() {
            member.ended = self.ended;
            member.sent_at = now;
        }
        for open in &mut self.open {
            open.waiting = self.members.len();
        }
        actions.push(SchedulerAction::ToAll(Arc::new(self.message())));
    }

    /// Removes a member; returns false if it was none.
    pub(super) fn remove(&mut self, worker: ContainerId) -> bool {
        let Some(member) = self.members.remove(&worker) else {
            return false;
        };
        self.departed = self.departed.plus(member.figures);
        for open in &mut self.open {
            if member.ended < open.group.id {
                open.waiting = open.waiting.saturating_sub(1);
            }
        }
        true
    }

    /// Returns the members that can take ranges over; those that leave, if there are no others.
    fn survivors(&self) -> Vec<ContainerId> {
        let eligible = self.eligible();
        match eligible.is_empty() {
            true => self.members.keys().copied().collect(),
            false => eligible,
        }
    }

    /// Returns the members that do not leave.
    pub(super) fn eligible(&self) -> Vec<ContainerId> {
        let members = self.members.iter();
        let eligible = members.filter(|(_, member)| !member.is_draining);
        eligible.map(|(worker, _)| *worker).collect()
    }

    /// Returns the reason for which these ranges cannot be restored by themselves, if any.
    fn obstacle(
        &self,
        mut lost: impl Iterator<Item = RangeId>,
        why: String,
    ) -> Option<GroupRollback> {
        if !self.config.has_partial_recovery {
            return Some(GroupRollback::TurnedOff(why));
        }
        // Outputs that the first recovery requires may have been on their way from this worker.
        if self.unneeded() < self.committed {
            return Some(GroupRollback::LostAgain(why));
        }
        if self.survivors().is_empty() {
            return Some(GroupRollback::NoWorker(why));
        }
        lost.find_map(|at| {
            let stage = self.graph.stage(at.stage)?;
            if !stage.is_deterministic {
                return Some(GroupRollback::NotDeterministic(at.stage.0));
            }
            let mut inputs = stage.inputs.iter().map(|input| input.from);
            let is_missing = |from: &_| self.missing.iter().any(|(stage, _)| stage == from);
            let from = inputs.find(is_missing)?;
            Some(GroupRollback::OutputsLost(from.0))
        })
    }
}
