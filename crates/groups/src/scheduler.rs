//! The scheduler of the leader: plans groups of micro-batches, and changes the placement between
//! them.

mod adaptation;
mod interface;
mod members;
mod planning;
mod recovery;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{MicroBatch, Result};

use super::figures::GroupFigures;
use super::message::{FromGroupWorker, GroupId, RangeMove};
use super::optimizer::Optimizer;
use super::placement::{PlacementVersion, RangePlacement};
use super::stage_graph::{StageGraph, StageId};
use adaptation::Adaptation;
use ardea_coordination::control::{Generation, GroupTuner, MasterEpoch, TunerStep};
use ardea_coordination::packing::ContainerId;
pub use interface::{
    BatchMode, GroupRollback, GroupSchedulerConfig, GroupSizing, GroupSummary, SchedulerAction,
    SchedulerEvent,
};
use members::GroupMember;
use planning::OpenGroup;

/// The phase of a [`GroupScheduler`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SchedulerPhase {
    /// No attempt runs.
    Idle,
    Running,
    Stopped,
}

/// The scheduler of the leader.
///
/// The steady state costs one message to each worker and one from it for each group. A report costs
/// constant time while no ranges move.
#[derive(Debug)]
pub struct GroupScheduler {
    master: MasterEpoch,
    config: GroupSchedulerConfig,
    graph: StageGraph,
    generation: Generation,
    phase: SchedulerPhase,
    members: BTreeMap<ContainerId, GroupMember>,
    placement: Arc<RangePlacement>,
    version: PlacementVersion,
    /// The moves that some member may not know, oldest first.
    moves: Arc<[RangeMove]>,
    /// The version before the first of `moves`.
    moves_since: PlacementVersion,
    /// The groups that have not ended on all members.
    open: VecDeque<OpenGroup>,
    newest: GroupId,
    last_batch: MicroBatch,
    /// The newest group that has ended on all members.
    ended: GroupId,
    ended_batch: MicroBatch,
    /// The newest group before the attempt.
    first_group: GroupId,
    ended_at: Duration,
    committed: MicroBatch,
    /// True if members have joined or leave since the last balancing.
    is_unbalanced: bool,
    /// True if some members leave.
    is_draining: bool,
    /// The last micro-batch to run, after a request to stop.
    stop_after: Option<MicroBatch>,
    change: Option<Arc<[u8]>>,
    /// The newest planned change, and the first micro-batch with it.
    planned_change: Option<(MicroBatch, Arc<[u8]>)>,
    tuner: Option<GroupTuner>,
    /// The averaged duration of a micro-batch.
    batch_duration: Option<Duration>,
    /// Time that the leader has spent since the last group ended.
    spent: Duration,
    /// Totals of the members that have left the attempt.
    departed: GroupFigures,
    adaptation: Adaptation,
    /// Handovers that may not be complete.
    handovers: Vec<RangeMove>,
    /// Workers that keep outputs of ranges which they have handed over.
    former: Vec<FormerOutputs>,
    /// Stages of which outputs up to a micro-batch are lost.
    missing: Vec<(StageId, MicroBatch)>,
    restoring: Option<Restoring>,
    checked_at: Duration,
}

/// Outputs that stay at a worker after their range has moved.
#[derive(Clone, Copy, Debug)]
struct FormerOutputs {
    worker: ContainerId,
    stage: StageId,
    through: MicroBatch,
}

/// Ranges that run micro-batches again which others have ended.
#[derive(Clone, Copy, Debug)]
struct Restoring {
    /// The last micro-batch of the state from which they were restored.
    after: MicroBatch,
    /// The ranges have caught up when all stages have ended this micro-batch.
    until: MicroBatch,
}

impl GroupScheduler {
    /// Creates the scheduler of a leader. It waits for [`SchedulerEvent::Begun`].
    ///
    /// # Errors
    /// As [`GroupSchedulerConfig::check`].
    pub fn new(
        master: MasterEpoch,
        graph: StageGraph,
        config: GroupSchedulerConfig,
    ) -> Result<Self> {
        config.check()?;
        let tuner = match config.sizing {
            GroupSizing::Tuned(tuner) => Some(GroupTuner::new(tuner)?),
            GroupSizing::Fixed(_) => None,
        };
        Ok(GroupScheduler {
            master,
            config,
            graph,
            generation: Generation::default(),
            phase: SchedulerPhase::Idle,
            members: BTreeMap::new(),
            placement: Arc::default(),
            version: PlacementVersion::default(),
            moves: Arc::default(),
            moves_since: PlacementVersion::default(),
            open: VecDeque::new(),
            newest: GroupId::default(),
            last_batch: MicroBatch::default(),
            ended: GroupId::default(),
            ended_batch: MicroBatch::default(),
            first_group: GroupId::default(),
            ended_at: Duration::ZERO,
            committed: MicroBatch::default(),
            is_unbalanced: false,
            is_draining: false,
            stop_after: None,
            change: None,
            planned_change: None,
            tuner,
            batch_duration: None,
            spent: Duration::ZERO,
            departed: GroupFigures::default(),
            adaptation: Adaptation::default(),
            handovers: Vec::new(),
            former: Vec::new(),
            missing: Vec::new(),
            restoring: None,
            checked_at: Duration::ZERO,
        })
    }

    /// Adds an optimizer, which is called at the end of each group with the work of each range.
    #[must_use]
    pub fn with_optimizer(mut self, optimizer: Box<dyn Optimizer>) -> Self {
        self.adaptation.optimizer = Some(optimizer);
        self
    }

    /// Processes an event and returns the resulting actions.
    pub fn on(&mut self, now: Duration, event: SchedulerEvent) -> Vec<SchedulerAction> {
        let mut actions = Vec::new();
        match event {
            SchedulerEvent::Tick => self.repeat_messages(now, &mut actions),
            SchedulerEvent::Begun {
                generation,
                after,
                workers,
            } => self.begin(now, generation, after, &workers, &mut actions),
            SchedulerEvent::Joined(worker) => self.join(now, worker, &mut actions),
            SchedulerEvent::Draining(worker) => self.drain(worker),
            SchedulerEvent::Lost(worker, why) => self.lose(now, worker, why, &mut actions),
            SchedulerEvent::From(message) => self.on_message(now, message, &mut actions),
            SchedulerEvent::Committed(batch) => self.commit(batch),
            SchedulerEvent::Change(change) => self.change = Some(change),
            SchedulerEvent::Spent(time) => self.spent += time,
            SchedulerEvent::Stop => {
                self.stop_after.get_or_insert(self.last_batch);
            }
        }
        self.advance(now, &mut actions);
        actions
    }

    /// Returns the time at which the next group is to be planned, if that is known.
    pub fn deadline(&self) -> Option<Duration> {
        match self.phase {
            SchedulerPhase::Running if !self.is_planned_out() => self.planning_time(),
            _ => None,
        }
    }

    /// Returns the places of all ranges.
    pub fn placement(&self) -> &RangePlacement {
        &self.placement
    }

    /// Returns the oldest checkpoint from which ranges may still be restored, by the last
    /// micro-batch before it.
    pub fn required_checkpoint(&self) -> MicroBatch {
        self.unneeded()
    }

    /// Returns the newest sizes of tuned groups, oldest first.
    pub fn trace(&self) -> impl Iterator<Item = &TunerStep> {
        self.tuner.iter().flat_map(GroupTuner::trace)
    }

    fn begin(
        &mut self,
        now: Duration,
        generation: Generation,
        after: MicroBatch,
        workers: &[ContainerId],
        actions: &mut Vec<SchedulerAction>,
    ) {
        self.phase = SchedulerPhase::Idle;
        let draining = self.members.iter().filter(|(_, member)| member.is_draining);
        let draining: Vec<ContainerId> = draining.map(|(worker, _)| *worker).collect();
        self.members.clear();
        self.open.clear();
        self.handovers.clear();
        self.former.clear();
        self.missing.clear();
        self.restoring = None;
        self.departed = GroupFigures::default();
        self.adaptation.begin();
        let mut places = workers.to_vec();
        places.retain(|worker| !draining.contains(worker));
        if places.is_empty() {
            places = workers.to_vec();
        }
        let Some(placement) = RangePlacement::spread(&self.graph, &places) else {
            let why = "none is there".to_string();
            return actions.push(SchedulerAction::RollBack(GroupRollback::NoWorker(why)));
        };
        self.phase = SchedulerPhase::Running;
        self.generation = generation;
        self.placement = Arc::new(placement);
        self.version = self.version.next();
        self.moves = Arc::default();
        self.moves_since = self.version;
        self.last_batch = after;
        self.committed = self.committed.max(after);
        self.ended = self.newest;
        self.ended_batch = after;
        self.first_group = self.newest;
        self.ended_at = now;
        self.is_unbalanced = false;
        self.is_draining = false;
        // A change that was planned after the checkpoint is planned again, unless there is a newer
        // one.
        if let Some((_, change)) = self.planned_change.take_if(|(from, _)| *from > after) {
            self.change.get_or_insert(change);
        }
        let start = self.starting_point();
        for worker in workers {
            let member = GroupMember::new(Arc::clone(&start), now);
            self.members.insert(*worker, member);
        }
        draining.into_iter().for_each(|worker| self.drain(worker));
    }

    /// Lets a member leave. It loses its ranges when no micro-batch is in flight.
    fn drain(&mut self, worker: ContainerId) {
        if let Some(member) = self.members.get_mut(&worker) {
            member.is_draining = true;
            self.is_draining = true;
            self.is_unbalanced = true;
        }
    }

    fn on_message(
        &mut self,
        now: Duration,
        message: FromGroupWorker,
        actions: &mut Vec<SchedulerAction>,
    ) {
        let is_running = self.phase == SchedulerPhase::Running;
        match message {
            FromGroupWorker::Progress {
                worker,
                generation,
                version,
                planned,
                ended,
                is_missing,
                figures,
                ranges,
            } if is_running => {
                let report = members::Report {
                    version,
                    planned,
                    ended,
                    is_missing,
                    figures,
                    ranges,
                };
                let is_current = generation == Some(self.generation);
                let report = is_current.then_some(report);
                self.on_report(now, worker, report, actions);
            }
            FromGroupWorker::CannotRecover {
                worker,
                generation,
                reason,
            } if is_running
                && generation == self.generation
                && self.members.contains_key(&worker) =>
            {
                self.roll_back(GroupRollback::Worker(worker, reason), actions);
            }
            _ => {}
        }
    }

    fn commit(&mut self, batch: MicroBatch) {
        self.committed = self.committed.max(batch);
        let unneeded = self.unneeded();
        self.former.retain(|former| former.through > unneeded);
        self.missing.retain(|(_, through)| *through > unneeded);
    }

    /// Returns the last micro-batch whose outputs are no longer needed.
    fn unneeded(&self) -> MicroBatch {
        let restored = self.restoring.map(|restoring| restoring.after);
        restored.map_or(self.committed, |after| after.min(self.committed))
    }

    fn roll_back(&mut self, why: GroupRollback, actions: &mut Vec<SchedulerAction>) {
        self.phase = SchedulerPhase::Idle;
        self.open.clear();
        actions.push(SchedulerAction::RollBack(why));
    }
}
