//! The scheduler of a worker: holds the tasks of whole groups, and activates each when its inputs
//! are complete, without the leader.
//!
//! A range runs its micro-batches in order. So the inactive tasks of a range are an interval of
//! micro-batches. Its inputs are a counter for each micro-batch that some producers have ended and
//! others have not.

mod inputs;
mod moves;
mod notices;
mod ranges;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::MicroBatch;

use super::figures::{GroupFigures, RangeFigures, TaskFigures};
use super::message::{BatchNotice, FromGroupWorker, GroupId, PlannedGroup, ToGroupWorker};
use super::placement::{PlacementVersion, RangeId, RangePlacement};
use ardea_coordination::control::{Generation, MasterEpoch};
use ardea_coordination::packing::ContainerId;
use ranges::{FormerRange, LocalRange, LocalStage, RangeState};

/// A task: the work of one range in one micro-batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BatchTask {
    /// The range.
    pub at: RangeId,
    /// The micro-batch.
    pub batch: MicroBatch,
}

/// An event for a [`LocalScheduler`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocalEvent {
    /// Time has passed. Must come at least every 50 ms.
    Tick,
    /// A message of the leader.
    FromLeader(ToGroupWorker),
    /// A notice of another worker. The notices of a worker arrive in the order in which it sent
    /// them, each after the data of its micro-batches.
    Notice(BatchNotice),
    /// A task has ended with this work, and its output is on its way.
    Ended(BatchTask, TaskFigures),
    /// The state of a range has arrived; the answer to [`LocalAction::Restore`] and
    /// [`LocalAction::Receive`].
    StateArrived(RangeId),
    /// Kept outputs of the micro-batches up to this one no longer exist, though they are not
    /// committed.
    OutputsDropped(MicroBatch),
}

/// An action requested by a [`LocalScheduler`].
///
/// Actions must be carried out in their order. Data of a producer and micro-batch that arrives
/// again is to be dropped; so is data of a lost worker without a notice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocalAction {
    /// Run the task: all its inputs are here. Answered by [`LocalEvent::Ended`].
    Run(BatchTask),
    /// Send the data of the notice's producers and micro-batches to a worker, and the notice behind
    /// it. Data that has been sent to another worker, from which a range has moved since, is sent
    /// again. The receiver may be this worker: then its ranges get the data, and no notice.
    Notify(ContainerId, BatchNotice),
    /// Send kept outputs of the notice's producers and micro-batches again, to its only consumer,
    /// and the notice behind them. The receiver may be this worker, as above.
    Resend(ContainerId, BatchNotice),
    /// Restore the state of a range from the checkpoint after this micro-batch. A later request for
    /// the state of the same range replaces an earlier one.
    Restore(RangeId, MicroBatch),
    /// Receive the state of a range from its previous worker.
    Receive(RangeId, ContainerId),
    /// Send the state of a range to its next worker. No task of the range runs.
    HandOver(RangeId, ContainerId),
    /// Discard the state of a range, which continues elsewhere.
    Discard(RangeId),
    /// Drop kept outputs of the micro-batches up to this one.
    Trim(MicroBatch),
    /// Apply a change of the plan from this micro-batch on.
    Change(MicroBatch, Arc<[u8]>),
    /// Send a message to the leader; it may be lost.
    ToLeader(FromGroupWorker),
}

/// The scheduler of a worker.
#[derive(Debug)]
pub struct LocalScheduler {
    me: ContainerId,
    /// The time after which an unconfirmed report is repeated.
    repeat_after: Duration,
    master: MasterEpoch,
    generation: Option<Generation>,
    placement: Arc<RangePlacement>,
    version: PlacementVersion,
    stages: Vec<LocalStage>,
    /// The groups that have not ended everywhere, as far as the leader has told.
    groups: VecDeque<PlannedGroup>,
    /// The newest received group.
    planned: GroupId,
    /// The newest group of which all tasks of this worker have ended.
    ended: GroupId,
    /// The newest group that has ended everywhere, as far as the leader has told.
    ended_everywhere: GroupId,
    /// The last micro-batch whose outputs are not kept.
    kept_after: MicroBatch,
    former: Vec<FormerRange>,
    /// Notices of a later placement or attempt, in their order.
    early: Vec<BatchNotice>,
    /// Notices of this worker to itself.
    loopback: Vec<BatchNotice>,
    figures: GroupFigures,
    /// True if reports contain the work of each range.
    reports_ranges: bool,
    starved_since: Option<Duration>,
    reported_at: Duration,
    /// The reason for which the attempt cannot go on.
    failure: Option<String>,
    /// The time of the last report of `failure`, as far as a tick has come since the first.
    failed_at: Option<Duration>,
}

impl LocalScheduler {
    /// Creates the scheduler of the worker `me`, which waits for its starting point.
    pub fn new(me: ContainerId, repeat_after: Duration) -> Self {
        LocalScheduler {
            me,
            repeat_after,
            master: MasterEpoch::default(),
            generation: None,
            placement: Arc::default(),
            version: PlacementVersion::default(),
            stages: Vec::new(),
            groups: VecDeque::new(),
            planned: GroupId::default(),
            ended: GroupId::default(),
            ended_everywhere: GroupId::default(),
            kept_after: MicroBatch::default(),
            former: Vec::new(),
            early: Vec::new(),
            loopback: Vec::new(),
            figures: GroupFigures::default(),
            reports_ranges: false,
            starved_since: None,
            reported_at: Duration::ZERO,
            failure: None,
            failed_at: None,
        }
    }

    /// Processes an event and appends the resulting actions to `actions`. The end of a task and a
    /// notice allocate nothing in a steady state, except for `actions` and reports.
    pub fn on(&mut self, now: Duration, event: LocalEvent, actions: &mut Vec<LocalAction>) {
        match event {
            LocalEvent::Tick => {
                self.repeat_report(now, actions);
                self.repeat_failure(now, actions);
            }
            LocalEvent::FromLeader(message) => self.on_message(now, &message, actions),
            LocalEvent::Notice(notice) => {
                self.receive(notice, actions);
                self.end_groups(now, actions);
            }
            LocalEvent::Ended(task, work) => self.on_ended(now, task, work, actions),
            LocalEvent::StateArrived(at) => {
                if let Some(own) = self.own_mut(at)
                    && own.state == RangeState::Arriving
                {
                    own.state = RangeState::Idle;
                    self.activate(at, actions);
                }
            }
            LocalEvent::OutputsDropped(through) => self.kept_after = self.kept_after.max(through),
        }
    }

    /// Returns the places of all ranges, by which data is sent.
    pub fn placement(&self) -> &RangePlacement {
        &self.placement
    }

    /// Returns totals since the start of the attempt.
    pub fn figures(&self) -> GroupFigures {
        self.figures
    }

    /// Returns the number of planned tasks that have not been activated.
    pub fn inactive_tasks(&self) -> u64 {
        let of_range = |stage: &LocalStage, own: &LocalRange| {
            let running = u64::from(own.state == RangeState::Running);
            (stage.planned.0 + 1).saturating_sub(own.next.0 + running)
        };
        let stages = self.stages.iter();
        let ranges = stages.flat_map(|stage| stage.own.iter().map(move |own| of_range(stage, own)));
        ranges.sum()
    }

    /// Returns the memory of the ranges, their inputs and their inactive tasks, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let of_range = |own: &LocalRange| {
            let inputs: usize = own.inputs.iter().map(inputs::InputTracker::bytes).sum();
            size_of::<LocalRange>() + inputs
        };
        let of_stage = |stage: &LocalStage| {
            let ranges: usize = stage.own.iter().map(of_range).sum();
            size_of::<LocalStage>() + ranges
        };
        let stages: usize = self.stages.iter().map(of_stage).sum();
        stages + self.groups.capacity() * size_of::<PlannedGroup>()
    }

    fn on_ended(
        &mut self,
        now: Duration,
        task: BatchTask,
        work: TaskFigures,
        actions: &mut Vec<LocalAction>,
    ) {
        let Some(own) = self.own_mut(task.at) else {
            return;
        };
        // The range has moved since, or the attempt is another.
        if own.state != RangeState::Running || own.next != task.batch {
            return;
        }
        own.state = RangeState::Idle;
        own.next = task.batch.next();
        own.figures.add_task(work);
        let is_rerun = task.batch <= own.rerun_through;
        self.figures.tasks += 1;
        self.figures.tasks_rerun += u64::from(is_rerun);
        self.figures.work = self.figures.work.plus(work);
        self.notify_consumers(task, actions);
        self.activate(task.at, actions);
        self.deliver_loopback(actions);
        self.end_groups(now, actions);
    }

    /// Activates the next task of a range if its inputs are complete.
    fn activate(&mut self, at: RangeId, actions: &mut Vec<LocalAction>) {
        let Some(stage) = self.stages.get_mut(at.stage.index()) else {
            return;
        };
        let planned = stage.planned;
        if let Some(position) = stage.position(at.range) {
            activate_range(&mut stage.own[position], at, planned, actions);
        }
    }

    fn activate_all(&mut self, actions: &mut Vec<LocalAction>) {
        for stage in &mut self.stages {
            let (id, planned) = (stage.id, stage.planned);
            for own in &mut stage.own {
                let at = RangeId {
                    stage: id,
                    range: own.range,
                };
                activate_range(own, at, planned, actions);
            }
        }
    }

    fn own_mut(&mut self, at: RangeId) -> Option<&mut LocalRange> {
        let stage = self.stages.get_mut(at.stage.index())?;
        let position = stage.position(at.range)?;
        stage.own.get_mut(position)
    }

    /// Ends the groups of which all tasks have ended, and reports them.
    fn end_groups(&mut self, now: Duration, actions: &mut Vec<LocalAction>) {
        let before = self.ended;
        for group in &self.groups {
            let last = group.last();
            let mut stages = self.stages.iter().filter(|stage| group.has_stage(stage.id));
            if group.id <= self.ended {
                continue;
            }
            if !stages.all(|stage| stage.ended().is_none_or(|ended| ended >= last)) {
                break;
            }
            self.ended = group.id;
        }
        self.measure_starvation(now);
        if self.ended != before {
            self.report(now, false, actions);
        }
    }

    /// Measures the time in which the ranges of this worker have no planned task left. A range that
    /// catches up has such tasks, also if all groups have ended.
    fn measure_starvation(&mut self, now: Duration) {
        let has_ranges = || self.stages.iter().any(|stage| !stage.own.is_empty());
        let is_starved = self.ended == self.planned && has_ranges() && !self.has_planned_tasks();
        match self.starved_since {
            None if is_starved => self.starved_since = Some(now),
            Some(since) if !is_starved => {
                let starved = u64::try_from(now.saturating_sub(since).as_nanos());
                let starved = starved.unwrap_or(u64::MAX);
                self.figures.starved_nanos = self.figures.starved_nanos.saturating_add(starved);
                self.starved_since = None;
            }
            _ => {}
        }
    }

    fn has_planned_tasks(&self) -> bool {
        let mut stages = self.stages.iter();
        stages.any(|stage| stage.ended().is_some_and(|ended| ended < stage.planned))
    }

    fn report(&mut self, now: Duration, is_missing: bool, actions: &mut Vec<LocalAction>) {
        self.reported_at = now;
        actions.push(LocalAction::ToLeader(FromGroupWorker::Progress {
            worker: self.me,
            generation: self.generation,
            version: self.version,
            planned: self.planned,
            ended: self.ended,
            is_missing,
            figures: self.figures,
            ranges: match self.reports_ranges {
                true => self.range_figures(),
                false => Vec::new(),
            },
        }));
    }

    /// Repeats a report that the leader may not have received.
    fn repeat_report(&mut self, now: Duration, actions: &mut Vec<LocalAction>) {
        let is_confirmed = self.ended <= self.ended_everywhere && self.generation.is_some();
        if !is_confirmed && now.saturating_sub(self.reported_at) >= self.repeat_after {
            self.report(now, false, actions);
        }
    }

    fn range_figures(&self) -> Vec<RangeFigures> {
        let ranges = self.stages.iter().flat_map(|stage| &stage.own);
        ranges.map(|own| own.figures).collect()
    }

    /// Reports that the attempt cannot go on. The report is repeated until the next attempt begins.
    fn cannot_recover(&mut self, reason: String, actions: &mut Vec<LocalAction>) {
        if self.failure.is_none() {
            self.failure = Some(reason);
            self.failed_at = None;
            self.report_failure(actions);
        }
    }

    fn repeat_failure(&mut self, now: Duration, actions: &mut Vec<LocalAction>) {
        if self.failure.is_none() {
            return;
        }
        let failed_at = *self.failed_at.get_or_insert(now);
        if now.saturating_sub(failed_at) >= self.repeat_after {
            self.failed_at = Some(now);
            self.report_failure(actions);
        }
    }

    fn report_failure(&self, actions: &mut Vec<LocalAction>) {
        if let (Some(generation), Some(reason)) = (self.generation, self.failure.clone()) {
            actions.push(LocalAction::ToLeader(FromGroupWorker::CannotRecover {
                worker: self.me,
                generation,
                reason,
            }));
        }
    }
}

fn activate_range(
    own: &mut LocalRange,
    at: RangeId,
    planned: MicroBatch,
    actions: &mut Vec<LocalAction>,
) {
    if own.is_ready(planned) {
        own.state = RangeState::Running;
        let batch = own.next;
        actions.push(LocalAction::Run(BatchTask { at, batch }));
    }
}
