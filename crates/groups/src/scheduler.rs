//! The scheduler of the leader: plans groups of epochs, and changes the placement between them.

mod interface;
mod members;
mod planning;
mod recovery;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Epoch, Result};

use super::message::{FromGroupWorker, GroupId, RangeMove};
use super::placement::{PlacementVersion, RangePlacement};
use super::stage_graph::{StageGraph, StageId};
use super::tuner::{GroupTuner, TunerStep};
use ardea_coordination::control::{Generation, MasterEpoch};
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
    /// No further group is planned.
    Stopping,
    Stopped,
}

/// The scheduler of the leader.
///
/// The steady state costs one message to each worker and one from it for each group. A report costs
/// constant time.
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
    last_epoch: Epoch,
    /// The newest group that has ended on all members.
    ended: GroupId,
    ended_epoch: Epoch,
    /// The newest group before the attempt.
    first_group: GroupId,
    ended_at: Duration,
    committed: Epoch,
    /// True if members have joined or leave since the last balancing.
    is_unbalanced: bool,
    /// True if some members leave.
    is_draining: bool,
    change: Option<Arc<[u8]>>,
    tuner: Option<GroupTuner>,
    /// The averaged duration of an epoch.
    epoch_duration: Option<Duration>,
    /// Time that the leader has spent since the last group ended.
    spent: Duration,
    /// Handovers that may not be complete.
    handovers: Vec<RangeMove>,
    /// Workers that keep outputs of ranges which they have handed over.
    former: Vec<FormerOutputs>,
    /// Stages of which outputs up to an epoch are lost.
    missing: Vec<(StageId, Epoch)>,
    restoring: Option<Restoring>,
    checked_at: Duration,
}

/// Outputs that stay at a worker after their range has moved.
#[derive(Clone, Copy, Debug)]
struct FormerOutputs {
    worker: ContainerId,
    stage: StageId,
    through: Epoch,
}

/// Ranges that run epochs again which others have ended.
#[derive(Clone, Copy, Debug)]
struct Restoring {
    /// The last epoch of the state from which they were restored.
    after: Epoch,
    /// The last epoch that was planned when they were restored.
    until: Epoch,
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
            last_epoch: Epoch::default(),
            ended: GroupId::default(),
            ended_epoch: Epoch::default(),
            first_group: GroupId::default(),
            ended_at: Duration::ZERO,
            committed: Epoch::default(),
            is_unbalanced: false,
            is_draining: false,
            change: None,
            tuner,
            epoch_duration: None,
            spent: Duration::ZERO,
            handovers: Vec::new(),
            former: Vec::new(),
            missing: Vec::new(),
            restoring: None,
            checked_at: Duration::ZERO,
        })
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
            SchedulerEvent::Draining(worker) => {
                if let Some(member) = self.members.get_mut(&worker) {
                    member.is_draining = true;
                    self.is_draining = true;
                    self.is_unbalanced = true;
                }
            }
            SchedulerEvent::Lost(worker, why) => self.lose(now, worker, why, &mut actions),
            SchedulerEvent::From(message) => self.on_message(now, message, &mut actions),
            SchedulerEvent::Committed(epoch) => self.commit(epoch),
            SchedulerEvent::Change(change) => self.change = Some(change),
            SchedulerEvent::Spent(time) => self.spent += time,
            SchedulerEvent::Stop => {
                if self.phase == SchedulerPhase::Running {
                    self.phase = SchedulerPhase::Stopping;
                }
            }
        }
        self.advance(now, &mut actions);
        actions
    }

    /// Returns the time at which the next group is to be planned, if that is known.
    pub fn deadline(&self) -> Option<Duration> {
        match self.phase {
            SchedulerPhase::Running => self.planning_time(),
            _ => None,
        }
    }

    /// Returns the places of all ranges.
    pub fn placement(&self) -> &RangePlacement {
        &self.placement
    }

    /// Returns the epoch of the oldest checkpoint from which ranges may still be restored.
    pub fn required_checkpoint(&self) -> Epoch {
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
        after: Epoch,
        workers: &[ContainerId],
        actions: &mut Vec<SchedulerAction>,
    ) {
        self.phase = SchedulerPhase::Idle;
        self.members.clear();
        self.open.clear();
        self.handovers.clear();
        self.former.clear();
        self.missing.clear();
        self.restoring = None;
        let Some(placement) = RangePlacement::spread(&self.graph, workers) else {
            let why = "none is there".to_string();
            return actions.push(SchedulerAction::RollBack(GroupRollback::NoWorker(why)));
        };
        self.phase = SchedulerPhase::Running;
        self.generation = generation;
        self.placement = Arc::new(placement);
        self.version = self.version.next();
        self.moves = Arc::default();
        self.moves_since = self.version;
        self.last_epoch = after;
        self.committed = self.committed.max(after);
        self.ended = self.newest;
        self.ended_epoch = after;
        self.first_group = self.newest;
        self.ended_at = now;
        self.is_unbalanced = false;
        self.is_draining = false;
        let start = self.starting_point();
        for worker in workers {
            let member = GroupMember::new(Arc::clone(&start), now);
            self.members.insert(*worker, member);
        }
    }

    fn on_message(
        &mut self,
        now: Duration,
        message: FromGroupWorker,
        actions: &mut Vec<SchedulerAction>,
    ) {
        let is_running = matches!(
            self.phase,
            SchedulerPhase::Running | SchedulerPhase::Stopping
        );
        match message {
            FromGroupWorker::Progress {
                worker,
                generation,
                version,
                planned,
                ended,
                is_missing,
                figures,
            } if is_running => {
                let report = members::Report {
                    version,
                    planned,
                    ended,
                    is_missing,
                    figures,
                };
                let is_current = generation == Some(self.generation);
                let report = is_current.then_some(report);
                self.on_report(now, worker, report, actions);
            }
            FromGroupWorker::CannotRecover {
                worker,
                generation,
                reason,
            } if is_running && generation == self.generation => {
                self.roll_back(GroupRollback::Worker(worker, reason), actions);
            }
            _ => {}
        }
    }

    fn commit(&mut self, epoch: Epoch) {
        self.committed = self.committed.max(epoch);
        let unneeded = self.unneeded();
        self.former.retain(|former| former.through > unneeded);
        self.missing.retain(|(_, through)| *through > unneeded);
    }

    /// Returns the last epoch whose outputs are no longer needed.
    fn unneeded(&self) -> Epoch {
        let restored = self.restoring.map(|restoring| restoring.after);
        restored.map_or(self.committed, |after| after.min(self.committed))
    }

    fn roll_back(&mut self, why: GroupRollback, actions: &mut Vec<SchedulerAction>) {
        self.phase = SchedulerPhase::Idle;
        self.open.clear();
        actions.push(SchedulerAction::RollBack(why));
    }
}
