//! Planning of groups, and changes of the placement between them.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::Epoch;

use super::interface::{BatchMode, GroupSizing, GroupSummary};
use super::{FormerOutputs, GroupScheduler, SchedulerAction, SchedulerPhase};
use crate::message::{GroupFigures, MovedState, PlannedGroup, RangeMove, ToGroupWorker};
use crate::placement::RangeId;
use crate::stage_graph::StageId;
use ardea_coordination::packing::ContainerId;

/// The least time between the planning of a group and its expected start.
const MIN_LEAD: Duration = Duration::from_millis(20);

/// The weight of the newest group in the averaged duration of an epoch is one in this number.
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
        if matches!(self.phase, SchedulerPhase::Idle | SchedulerPhase::Stopped) {
            return;
        }
        while self.open.front().is_some_and(|open| open.waiting == 0) {
            if let Some(open) = self.open.pop_front() {
                self.end_group(now, &open, actions);
            }
        }
        self.release_drained(actions);
        if self.phase == SchedulerPhase::Stopping {
            if self.open.is_empty() {
                self.phase = SchedulerPhase::Stopped;
                actions.push(SchedulerAction::Stopped(self.last_epoch));
            }
            return;
        }
        while self.planning_time().is_some_and(|time| time <= now) {
            self.plan_group(now, actions);
        }
    }

    /// Returns the time at which the next group is to be planned; `None` if that depends on others.
    pub(super) fn planning_time(&self) -> Option<Duration> {
        let Some(running) = self.open.front() else {
            return Some(Duration::ZERO);
        };
        let is_full = self.open.len() > 1 || self.config.mode == BatchMode::BarrierPerBatch;
        // Changes wait until no epoch is in flight.
        if is_full || self.has_changes() {
            return None;
        }
        // Without an estimate, or if a worker has ended the group already, others wait.
        let Some(epoch) = self.epoch_duration else {
            return Some(Duration::ZERO);
        };
        if running.waiting < self.members.len() {
            return Some(Duration::ZERO);
        }
        let expected = epoch * running.group.epochs;
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
        self.ended_epoch = group.last();
        self.ended_at = now;
        if let Some(tuner) = &mut self.tuner {
            tuner.on_group(group.epochs, coordination, duration);
        }
        let epoch = duration / group.epochs;
        self.epoch_duration = Some(match self.epoch_duration {
            Some(before) => (before * (DURATION_SMOOTHING - 1) + epoch) / DURATION_SMOOTHING,
            None => epoch,
        });
        // A handover precedes its group, so all states have arrived.
        self.handovers.clear();
        if self
            .restoring
            .is_some_and(|restoring| restoring.until <= group.last())
        {
            self.restoring = None;
            self.commit(self.committed);
        }
        let mut totals = GroupFigures::default();
        for member in self.members.values() {
            let GroupFigures {
                tasks,
                tasks_rerun,
                blocks_reused,
                duplicates_dropped,
                starved_nanos,
            } = member.figures;
            totals.tasks += tasks;
            totals.tasks_rerun += tasks_rerun;
            totals.blocks_reused += blocks_reused;
            totals.duplicates_dropped += duplicates_dropped;
            totals.starved_nanos += starved_nanos;
        }
        actions.push(SchedulerAction::Ended(GroupSummary {
            group: group.id,
            first: group.first,
            epochs: group.epochs,
            duration,
            coordination,
            next_size: self.size(),
            totals,
        }));
    }

    /// Returns the number of epochs of the next group.
    fn size(&self) -> u32 {
        match (self.config.mode, self.config.sizing, &self.tuner) {
            (BatchMode::Groups, _, Some(tuner)) => tuner.size(),
            (BatchMode::Groups, GroupSizing::Fixed(size), _) => size,
            _ => 1,
        }
    }

    fn plan_group(&mut self, now: Duration, actions: &mut Vec<SchedulerAction>) {
        if self.open.is_empty() && self.is_unbalanced {
            self.balance();
        }
        let (first, epochs, only_stage) = self.next_epochs();
        let group = PlannedGroup {
            id: self.newest.next(),
            first,
            epochs,
            only_stage,
            change: match self.open.is_empty() {
                true => self.change.take(),
                false => None,
            },
        };
        self.newest = group.id;
        self.last_epoch = group.last();
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

    /// Returns the first epoch of the next group, the number of epochs, and its only stage.
    fn next_epochs(&self) -> (Epoch, u32, Option<StageId>) {
        if self.config.mode != BatchMode::BarrierPerBatch {
            return (self.last_epoch.next(), self.size(), None);
        }
        // The stages of an epoch follow each other.
        let stages = u64::try_from(self.graph.stages().len()).unwrap_or(1);
        let stage = self.newest.0.saturating_sub(self.first_group.0) % stages;
        let stage = StageId(u16::try_from(stage).unwrap_or(0));
        match stage.0 {
            0 => (self.last_epoch.next(), 1, Some(stage)),
            _ => (self.last_epoch, 1, Some(stage)),
        }
    }

    /// Moves ranges to members that have joined, and from members that leave.
    fn balance(&mut self) {
        self.is_unbalanced = false;
        let eligible = self
            .members
            .iter()
            .filter(|(_, member)| member.is_eligible());
        let workers: Vec<ContainerId> = eligible.map(|(worker, _)| *worker).collect();
        let places = self.placement.balance(&workers);
        let from = |at: RangeId| self.placement.worker(at);
        let moves = places.into_iter().filter_map(|(at, to)| {
            let state = MovedState::HandedOver(from(at)?);
            Some((at, to, self.last_epoch, state))
        });
        let moves: Vec<_> = moves.collect();
        self.handovers = self.change_placement(&moves);
        for moved in &self.handovers {
            let (stage, through) = (moved.at.stage, moved.after);
            let has_consumers = self.graph.consumers(stage).next().is_some();
            if let (true, MovedState::HandedOver(worker)) = (has_consumers, moved.state) {
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
        moves: &[(RangeId, ContainerId, Epoch, MovedState)],
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
