//! Events, actions and configuration of the group scheduler.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, MicroBatch, Result};

use crate::figures::GroupFigures;
use crate::message::{FromGroupWorker, GroupId, ToGroupWorker};
use crate::optimizer::PlanDecision;
use ardea_coordination::control::{Generation, MAX_GROUP_SIZE, TunerConfig};
use ardea_coordination::packing::ContainerId;

/// The way in which micro-batches are scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BatchMode {
    /// Groups of micro-batches with all their stages. The next group is planned while one runs.
    #[default]
    Groups,
    /// Single micro-batches with all their stages, each with its complete placement. The next one
    /// is planned while one runs. For comparison.
    Pipelined,
    /// Single stages of single micro-batches, each with its complete placement, and a barrier after
    /// each. Changes wait for the end of the last stage. For comparison.
    BarrierPerBatch,
}

/// The size of groups.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum GroupSizing {
    /// A fixed number of micro-batches.
    Fixed(u32),
    /// A number of micro-batches that follows the share of coordination.
    Tuned(TunerConfig),
}

/// The settings of a [`GroupScheduler`](super::GroupScheduler).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GroupSchedulerConfig {
    /// The way in which micro-batches are scheduled.
    pub mode: BatchMode,
    /// The size of groups in the mode [`BatchMode::Groups`].
    pub sizing: GroupSizing,
    /// True if the ranges of a lost worker are restored while others continue. Otherwise the loss
    /// of a worker rolls the job back.
    pub has_partial_recovery: bool,
    /// True if the ranges of a lost worker are dealt out over all survivors. Otherwise one survivor
    /// gets all of them.
    pub has_parallel_recovery: bool,
    /// The time after which an unconfirmed message to a worker is repeated.
    pub repeat_after: Duration,
}

impl Default for GroupSchedulerConfig {
    fn default() -> Self {
        GroupSchedulerConfig {
            mode: BatchMode::Groups,
            sizing: GroupSizing::Tuned(TunerConfig::default()),
            has_partial_recovery: true,
            has_parallel_recovery: true,
            repeat_after: Duration::from_secs(1),
        }
    }
}

impl GroupSchedulerConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if a group may be empty or too large, or bounds of the tuner
    /// are not in order.
    pub fn check(&self) -> Result<()> {
        match self.sizing {
            GroupSizing::Tuned(tuner) => tuner.check(),
            GroupSizing::Fixed(1..=MAX_GROUP_SIZE) => Ok(()),
            GroupSizing::Fixed(size) => Err(Error::new(
                ErrorCode::InvalidConfig,
                format!("groups of {size} micro-batches are impossible"),
            )
            .hint(format!("choose a size from 1 to {MAX_GROUP_SIZE}"))),
        }
    }
}

/// An event for a [`GroupScheduler`](super::GroupScheduler).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchedulerEvent {
    /// Time has passed. Must come at least every 50 ms, and at the
    /// [deadline](super::GroupScheduler::deadline).
    Tick,
    /// An attempt begins: the states of all ranges are restored by these workers, or will be before
    /// they process messages of the attempt. The places are those of
    /// [`placement`](super::GroupScheduler::placement): ranges are spread over the workers in their
    /// order, without those that leave.
    Begun {
        /// The attempt.
        generation: Generation,
        /// The last micro-batch that is part of the state.
        after: MicroBatch,
        /// The workers, at least one.
        workers: Vec<ContainerId>,
    },
    /// A worker has joined. It gets ranges at the end of a group.
    Joined(ContainerId),
    /// A worker is to leave. It loses its ranges at the end of a group. The request survives a
    /// rollback if the worker is part of the next attempt.
    Draining(ContainerId),
    /// A worker is lost, and with it the state in its memory.
    Lost(ContainerId, String),
    /// A message of a worker.
    From(FromGroupWorker),
    /// The checkpoint that was taken after this micro-batch is committed.
    Committed(MicroBatch),
    /// The plan is to change at the end of a group. The change is passed on to the workers, and
    /// replaces one that is not planned yet. It is planned again after a rollback to an earlier
    /// micro-batch.
    Change(Arc<[u8]>),
    /// The leader has spent this time on the groups.
    Spent(Duration),
    /// No micro-batch is to follow those that are planned. They also end after a rollback.
    Stop,
}

/// An action requested by a [`GroupScheduler`](super::GroupScheduler).
#[derive(Clone, PartialEq, Debug)]
pub enum SchedulerAction {
    /// Send a message to all workers of the attempt; it may be lost. It is the same for all, and to
    /// be encoded once.
    ToAll(Arc<ToGroupWorker>),
    /// Send a message to a worker; it may be lost.
    To(ContainerId, Arc<ToGroupWorker>),
    /// A group has ended on all workers.
    Ended(GroupSummary),
    /// A draining worker is no longer needed, neither its ranges nor its kept outputs.
    Drained(ContainerId),
    /// End the attempt, and restore the whole job from its newest checkpoint. Answered by
    /// [`SchedulerEvent::Begun`].
    RollBack(GroupRollback),
    /// All planned micro-batches have ended after [`SchedulerEvent::Stop`]; this is the last.
    Stopped(MicroBatch),
    /// The [optimizer](super::GroupScheduler::with_optimizer) requests changes of the plan. The
    /// driver answers with [`SchedulerEvent::Change`].
    Decided(Vec<PlanDecision>),
}

/// A group that has ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GroupSummary {
    /// The group.
    pub group: GroupId,
    /// The first micro-batch.
    pub first: MicroBatch,
    /// The number of micro-batches.
    pub batches: u32,
    /// The time from the end of the previous group.
    pub duration: Duration,
    /// The time in which a worker had no planned task left, and the leader's own time.
    pub coordination: Duration,
    /// The number of micro-batches of the next group.
    pub next_size: u32,
    /// Totals of all workers since the start of the attempt, those that have left included.
    pub totals: GroupFigures,
}

/// The reason for which a lost worker's ranges cannot be restored by themselves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupRollback {
    /// Partial recovery is turned off.
    TurnedOff(String),
    /// Another worker was lost during the recovery, and a checkpoint was committed in between.
    LostAgain(String),
    /// No worker is left.
    NoWorker(String),
    /// A lost stage may produce other output when it runs again.
    NotDeterministic(u16),
    /// Outputs of this stage that a lost range requires were lost as well.
    OutputsLost(u16),
    /// A worker cannot take part in the recovery, for this reason.
    Worker(ContainerId, String),
}

impl fmt::Display for GroupRollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupRollback::TurnedOff(why) => {
                write!(f, "a worker is lost, and partial recovery is off: {why}")
            }
            GroupRollback::LostAgain(why) => {
                write!(f, "another worker is lost during the recovery: {why}")
            }
            GroupRollback::NoWorker(why) => write!(f, "the last worker is lost: {why}"),
            GroupRollback::NotDeterministic(stage) => {
                write!(
                    f,
                    "tasks of stage {stage}, which is not deterministic, are lost"
                )
            }
            GroupRollback::OutputsLost(stage) => {
                write!(f, "outputs of stage {stage} that are needed again are lost")
            }
            GroupRollback::Worker(worker, why) => write!(f, "worker {worker}: {why}"),
        }
    }
}
