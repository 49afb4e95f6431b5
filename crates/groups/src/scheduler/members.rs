//! The workers of an attempt, as known by the leader.

use std::sync::Arc;
use std::time::Duration;

use super::{GroupScheduler, SchedulerAction, SchedulerPhase};
use crate::figures::{GroupFigures, RangeFigures};
use crate::message::{GroupId, GroupStart, ToGroupWorker};
use crate::placement::PlacementVersion;
use ardea_coordination::packing::ContainerId;

/// A worker of an attempt.
#[derive(Debug)]
pub(super) struct GroupMember {
    /// The starting point, until the worker has confirmed it.
    pub(super) start: Option<Arc<GroupStart>>,
    /// The newest version of the placement that the worker has confirmed, or from which it starts.
    pub(super) version: PlacementVersion,
    /// The newest group that the worker is known to have received.
    pub(super) planned: GroupId,
    /// The newest group that the worker has ended with the present placement.
    pub(super) ended: GroupId,
    pub(super) is_draining: bool,
    pub(super) figures: GroupFigures,
    /// Totals of its ranges, as last reported.
    pub(super) ranges: Vec<RangeFigures>,
    pub(super) sent_at: Duration,
}

/// The progress of a worker in the present attempt.
pub(super) struct Report {
    pub(super) version: PlacementVersion,
    pub(super) planned: GroupId,
    pub(super) ended: GroupId,
    pub(super) is_missing: bool,
    pub(super) figures: GroupFigures,
    pub(super) ranges: Vec<RangeFigures>,
}

impl GroupMember {
    pub(super) fn new(start: Arc<GroupStart>, now: Duration) -> Self {
        GroupMember {
            version: start.version,
            planned: start.group,
            ended: start.group,
            start: Some(start),
            is_draining: false,
            figures: GroupFigures::default(),
            ranges: Vec::new(),
            sent_at: now,
        }
    }
}

impl GroupScheduler {
    /// Returns the starting point of all workers of an attempt that begins, or of a worker without
    /// ranges.
    pub(super) fn starting_point(&self) -> Arc<GroupStart> {
        Arc::new(GroupStart {
            graph: self.graph.clone(),
            placement: Arc::clone(&self.placement),
            version: self.version,
            after: self.ended_batch,
            group: self.ended,
            reports_ranges: self.adaptation.optimizer.is_some(),
        })
    }

    pub(super) fn join(
        &mut self,
        now: Duration,
        worker: ContainerId,
        actions: &mut Vec<SchedulerAction>,
    ) {
        if self.phase != SchedulerPhase::Running || self.members.contains_key(&worker) {
            return;
        }
        let member = GroupMember::new(self.starting_point(), now);
        self.members.insert(worker, member);
        for open in &mut self.open {
            open.waiting += 1;
        }
        self.is_unbalanced = true;
        self.send_all_to(now, worker, actions);
    }

    /// Processes a report; `None` is that of a worker without the present starting point.
    pub(super) fn on_report(
        &mut self,
        now: Duration,
        worker: ContainerId,
        report: Option<Report>,
        actions: &mut Vec<SchedulerAction>,
    ) {
        let (version, newest) = (self.version, self.newest);
        let Some(member) = self.members.get_mut(&worker) else {
            return;
        };
        let Some(report) = report else {
            return self.send_all_to(now, worker, actions);
        };
        // Such a report is damaged: this leader has not planned that.
        if report.version > version || report.planned > newest || report.ended > newest {
            return;
        }
        member.start = None;
        member.version = member.version.max(report.version);
        member.planned = member.planned.max(report.planned);
        let figures = member.figures.newest(report.figures);
        let starved = figures.starved_nanos - member.figures.starved_nanos;
        let starved = Duration::from_nanos(starved);
        if report.figures.tasks >= member.figures.tasks {
            member.ranges = report.ranges;
        }
        member.figures = figures;
        let before = member.ended;
        if report.version == version {
            member.ended = before.max(report.ended);
        }
        let ended = member.ended;
        for group in &mut self.open {
            if before < group.group.id && group.group.id <= ended {
                group.waiting = group.waiting.saturating_sub(1);
                group.starved = group.starved.max(starved);
            }
        }
        if !self.moves.is_empty() {
            self.forget_moves();
        }
        if report.is_missing {
            self.send_all_to(now, worker, actions);
        }
    }

    /// Forgets moves that all members know.
    fn forget_moves(&mut self) {
        let known = self.members.values().map(|member| member.version).min();
        let known = known.unwrap_or(self.version).min(self.version);
        if known > self.moves_since {
            let rest = self.moves.iter().filter(|moved| moved.version > known);
            self.moves = rest.copied().collect();
            self.moves_since = known;
        }
    }

    /// Sends everything that a worker may not have.
    pub(super) fn send_all_to(
        &mut self,
        now: Duration,
        worker: ContainerId,
        actions: &mut Vec<SchedulerAction>,
    ) {
        let Some(member) = self.members.get_mut(&worker) else {
            return;
        };
        member.sent_at = now;
        let open = self.open.iter().map(|open| &open.group);
        let message = ToGroupWorker {
            start: member.start.clone(),
            groups: open
                .filter(|group| group.id > member.planned)
                .cloned()
                .collect(),
            ..self.message()
        };
        actions.push(SchedulerAction::To(worker, Arc::new(message)));
    }

    /// Returns a message without groups and without a starting point.
    pub(super) fn message(&self) -> ToGroupWorker {
        ToGroupWorker {
            master: self.master,
            generation: self.generation,
            start: None,
            since: self.moves_since,
            moves: Arc::clone(&self.moves),
            version: self.version,
            groups: Vec::new(),
            complete: None,
            committed: self.unneeded(),
            ended: self.ended,
        }
    }

    /// Repeats messages that were not confirmed in time.
    pub(super) fn repeat_messages(&mut self, now: Duration, actions: &mut Vec<SchedulerAction>) {
        let interval = self.config.repeat_after / 4;
        let is_over = self.phase != SchedulerPhase::Running;
        if is_over || now.saturating_sub(self.checked_at) < interval {
            return;
        }
        self.checked_at = now;
        let (version, newest) = (self.version, self.newest);
        let repeat_after = self.config.repeat_after;
        let late = self.members.iter().filter(|(_, member)| {
            let is_confirmed =
                member.start.is_none() && member.version == version && member.planned == newest;
            !is_confirmed && now.saturating_sub(member.sent_at) >= repeat_after
        });
        let late: Vec<ContainerId> = late.map(|(worker, _)| *worker).collect();
        for worker in late {
            self.send_all_to(now, worker, actions);
        }
    }
}
