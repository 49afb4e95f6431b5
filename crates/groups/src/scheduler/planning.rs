//! Planning of groups, and changes of the placement between them.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::MicroBatch;

use super::interface::{BatchMode, GroupSizing, GroupSummary};
use super::{FormerOutputs, GroupScheduler, Restoring, SchedulerAction, SchedulerPhase};
use crate::figures::GroupFigures;
use crate::message::{MovedState, PlannedGroup, RangeMove, ToGroupWorker};
use crate::placement::RangeId;
use crate::stage_graph::StageId;
use ardea_coordination::packing::ContainerId;

/// The least time between the planning of a group and its expected start.
const MIN_LEAD: Duration = Duration::from_millis(20);

/// The weight of the newest group in the averaged duration of a micro-batch is one in this number.
const DURATION_SMOOTHING: u32 = 4;

/// A group that has not ended on all members.
#[derive(Debug)]
pub(super) struct OpenGroup {
    pub(super) group: PlannedGroup,
    /// The number of members that have not ended it.
    pub(super) waiting: usize,
    /// The longest time in which a member had no planned task left before the group.
    pub(super) starved: Duration,
}

impl GroupScheduler {
    /// Ends groups and plans others.
    pub(super) fn advance(&mut self, now: Duration, actions: &mut Vec<SchedulerAction>) {
        if self.phase != SchedulerPhase::Running {
            return;
        }
        while self.open.front().is_some_and(|open| open.waiting == 0) {
            if let Some(open) = self.open.pop_front() {
                self.end_group(now, &open, actions);
            }
        }
        self.release_drained(actions);
        while !self.is_planned_out() && self.planning_time().is_some_and(|time| time <= now) {
            self.plan_group(now, actions);
        }
        if self.is_planned_out() && self.open.is_empty() {
            self.phase = SchedulerPhase::Stopped;
            actions.push(SchedulerAction::Stopped(self.last_batch));
        }
    }

    /// Returns true if all micro-batches are planned that are to run before a requested stop.
    pub(super) fn is_planned_out(&self) -> bool {
        let has_reached = |last| self.last_batch >= last;
        self.stop_after.is_some_and(has_reached) && self.next_stage() == StageId(0)
    }

    /// Returns the stage of the next group, or its first one.
    fn next_stage(&self) -> StageId {
        if self.config.mode != BatchMode::BarrierPerBatch {
            return StageId(0);
        }
        // The stages of a micro-batch follow each other.
        let stages = u64::try_from(self.graph.stages().len()).unwrap_or(1);
        let stage = self.newest.0.saturating_sub(self.first_group.0) % stages;
        StageId(u16::try_from(stage).unwrap_or(0))
    }

    /// Returns the time at which the next group is to be planned; `None` if that depends on others.
    pub(super) fn planning_time(&self) -> Option<Duration> {
        let Some(running) = self.open.front() else {
            return Some(Duration::ZERO);
        };
        let is_full = self.open.len() > 1 || self.config.mode == BatchMode::BarrierPerBatch;
        // Changes wait until no micro-batch is in flight.
        if is_full || self.has_changes() {
            return None;
        }
        // Without an estimate, or if a worker has ended the group already, others wait.
        let Some(batch) = self.batch_duration else {
            return Some(Duration::ZERO);
        };
        if running.waiting < self.members.len() {
            return Some(Duration::ZERO);
        }
        let expected = batch * running.group.batches;
        // A message is confirmed by the report of the running group, before it would be repeated.
        let lead = (expected / 2).min(self.config.repeat_after / 2);
        let lead = lead.max(MIN_LEAD).min(expected);
        Some(self.ended_at + (expected - lead))
    }

    /// Returns true if the placement or the plan is to change.
    fn has_changes(&self) -> bool {
        self.change.is_some() || self.is_unbalanced
    }

    fn end_group(&mut self, now: Duration, open: &OpenGroup, actions: &mut Vec<SchedulerAction>) {
        let group = &open.group;
        let duration = now.saturating_sub(self.ended_at);
        let coordination = open.starved + std::mem::take(&mut self.spent);
        self.ended = group.id;
        self.ended_batch = group.last();
        self.ended_at = now;
        if let Some(tuner) = &mut self.tuner {
            tuner.on_group(group.batches, coordination, duration);
        }
        let batch = duration / group.batches;
        self.batch_duration = Some(match self.batch_duration {
            Some(before) => (before * (DURATION_SMOOTHING - 1) + batch) / DURATION_SMOOTHING,
            None => batch,
        });
        if group.has_stage(self.graph.last()) {
            // All stages have run a micro-batch since the last balancing, so all states have
            // arrived.
            self.handovers.clear();
            let has_caught_up = |restoring: Restoring| restoring.until <= group.last();
            if self.restoring.is_some_and(has_caught_up) {
                self.restoring = None;
                self.commit(self.committed);
            }
        }
        let summary = GroupSummary {
            group: group.id,
            first: group.first,
            batches: group.batches,
            duration,
            coordination,
            next_size: self.size(),
            totals: self.totals(),
        };
        actions.push(SchedulerAction::Ended(summary));
        self.adapt(&summary, actions);
    }

    /// Returns the totals of all workers since the start of the attempt.
    fn totals(&self) -> GroupFigures {
        let figures = self.members.values().map(|member| member.figures);
        figures.fold(self.departed, GroupFigures::plus)
    }

    /// Returns the number of micro-batches of the next group.
    fn size(&self) -> u32 {
        match (self.config.mode, self.config.sizing, &self.tuner) {
            (BatchMode::Groups, _, Some(tuner)) => tuner.size(),
            (BatchMode::Groups, GroupSizing::Fixed(size), _) => size,
            _ => 1,
        }
    }

    fn plan_group(&mut self, now: Duration, actions: &mut Vec<SchedulerAction>) {
        // No task of a planned micro-batch is left: the states of all ranges are those after it.
        let is_between_batches = self.open.is_empty() && self.next_stage() == StageId(0);
        if is_between_batches && self.is_unbalanced {
            self.balance();
        }
        let (first, batches, only_stage) = self.next_batches();
        let change = match is_between_batches {
            true => self.change.take(),
            false => None,
        };
        if let Some(change) = &change {
            self.planned_change = Some((first, Arc::clone(change)));
        }
        let group = PlannedGroup {
            id: self.newest.next(),
            first,
            batches,
            only_stage,
            change,
        };
        self.newest = group.id;
        self.last_batch = group.last();
        let start = self
            .members
            .values()
            .find_map(|member| member.start.clone());
        let is_complete = self.config.mode != BatchMode::Groups;
        let message = ToGroupWorker {
            // All members wait for the same starting point, or one has just joined.
            start: start.filter(|start| start.version == self.moves_since),
            groups: vec![group.clone()],
            complete: is_complete.then(|| Arc::clone(&self.placement)),
            ..self.message()
        };
        for member in self.members.values_mut() {
            member.sent_at = now;
        }
        self.open.push_back(OpenGroup {
            group,
            waiting: self.members.len(),
            starved: Duration::ZERO,
        });
        actions.push(SchedulerAction::ToAll(Arc::new(message)));
    }

    /// Returns the first micro-batch of the next group, their number, and its only stage.
    fn next_batches(&self) -> (MicroBatch, u32, Option<StageId>) {
        if self.config.mode == BatchMode::BarrierPerBatch {
            let stage = self.next_stage();
            return match stage.0 {
                0 => (self.last_batch.next(), 1, Some(stage)),
                _ => (self.last_batch, 1, Some(stage)),
            };
        }
        // After a rollback, micro-batches that were planned before a stop run again, and no others.
        let left = self
            .stop_after
            .map(|last| last.0.saturating_sub(self.last_batch.0));
        let most = left.map_or(u32::MAX, |left| u32::try_from(left).unwrap_or(u32::MAX));
        (self.last_batch.next(), self.size().min(most.max(1)), None)
    }

    /// Moves ranges to members that have joined, and from members that leave.
    fn balance(&mut self) {
        self.is_unbalanced = false;
        let places = self.placement.balance(&self.eligible());
        let from = |at: RangeId| self.placement.worker(at);
        let moves = places.into_iter().filter_map(|(at, to)| {
            let state = MovedState::HandedOver(from(at)?);
            Some((at, to, self.last_batch, state))
        });
        let moves: Vec<_> = moves.collect();
        self.handovers = self.change_placement(&moves);
        let unneeded = self.unneeded();
        for moved in &self.handovers {
            let (stage, through) = (moved.at.stage, moved.after);
            let is_kept = through > unneeded && self.graph.consumers(stage).next().is_some();
            if let (true, MovedState::HandedOver(worker)) = (is_kept, moved.state) {
                self.former.push(FormerOutputs {
                    worker,
                    stage,
                    through,
                });
            }
        }
    }

    /// Changes the placement, and returns the moves in their new version.
    pub(super) fn change_placement(
        &mut self,
        moves: &[(RangeId, ContainerId, MicroBatch, MovedState)],
    ) -> Vec<RangeMove> {
        if moves.is_empty() {
            return Vec::new();
        }
        self.version = self.version.next();
        let version = self.version;
        let moves = moves.iter().map(|(at, to, after, state)| RangeMove {
            version,
            at: *at,
            to: *to,
            after: *after,
            state: *state,
        });
        let moves: Vec<RangeMove> = moves.collect();
        for moved in &moves {
            Arc::make_mut(&mut self.placement).set(moved.at, moved.to);
        }
        let all = self.moves.iter().chain(&moves).copied();
        self.moves = all.collect();
        moves
    }

    /// Releases draining members whose ranges and kept outputs are no longer needed.
    fn release_drained(&mut self, actions: &mut Vec<SchedulerAction>) {
        if !self.is_draining {
            return;
        }
        let is_needed = |worker: ContainerId| {
            let keeps_outputs = self.former.iter().any(|former| former.worker == worker);
            let hands_over = |moved: &RangeMove| {
                moved.to == worker || moved.state == MovedState::HandedOver(worker)
            };
            keeps_outputs
                || self.handovers.iter().any(hands_over)
                || self.placement.has_worker(worker)
        };
        let draining = self.members.iter().filter(|(_, member)| member.is_draining);
        let drained: Vec<ContainerId> = draining
            .map(|(worker, _)| *worker)
            .filter(|worker| !is_needed(*worker))
            .collect();
        for worker in drained {
            self.remove(worker);
            actions.push(SchedulerAction::Drained(worker));
        }
        self.is_draining = self.members.values().any(|member| member.is_draining);
    }
}
