//! What happens to a job master, and what it wants done.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{ContainerId, InstanceId, InstanceLimits, Resources, VertexName};
use serde::{Deserialize, Serialize};

use super::Displaced;
use crate::control::{
    BackoffConfig, Cause, EpochsCommand, EpochsConfig, EpochsNote, EpochsRecord, JobRecord,
    MembershipConfig, Needed, Order, PlanVersion, Refused, RequestId, StoreReply, StoreRequest,
    ToMaster, ToWorker, UpgradeOrder, WorkerId,
};

/// Times and traits of a job's master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MasterConfig {
    /// When workers are given up.
    pub membership: MembershipConfig,
    /// What the scheduler is like.
    pub scheduler: SchedulerTraits,
    /// How long a new master waits for the workers to come before it has the missing ones started again.
    pub recovery_grace: Duration,
    /// How long a container that was started may take to register before it is started again.
    pub register_within: Duration,
    /// How long to wait before a container is started again.
    pub restart: BackoffConfig,
    /// After how long an assignment that was not carried out is sent again.
    pub repeat_after: Duration,
    /// How long changes of workers' places are gathered before all others are told.
    pub gather_peers: Duration,
    /// How long containers of a next plan may be refused by the scheduler before the job goes back to the plan that it has.
    pub room_within: Duration,
    /// How long containers of a next plan may take to come up, however often they are started again, before the job goes back.
    pub up_within: Duration,
    /// To how many instances a job may be updated.
    pub instances: InstanceLimits,
    /// What the job promises, and when its epochs end; none if it promises nothing.
    pub epochs: Option<EpochsConfig>,
}

impl Default for MasterConfig {
    fn default() -> Self {
        MasterConfig {
            membership: MembershipConfig::default(),
            scheduler: SchedulerTraits::default(),
            recovery_grace: Duration::from_secs(5),
            register_within: Duration::from_secs(30),
            restart: BackoffConfig::default(),
            repeat_after: Duration::from_secs(1),
            gather_peers: Duration::from_millis(50),
            room_within: Duration::from_secs(30),
            up_within: Duration::from_secs(120),
            instances: InstanceLimits::default(),
            epochs: None,
        }
    }
}

/// What a scheduler says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchedulerTraits {
    /// Whether failed containers are started again by it, when the master says so; otherwise its framework does that by itself.
    pub stateful: bool,
    /// Whether all containers have to be of one size.
    pub homogeneous: bool,
}

impl Default for SchedulerTraits {
    fn default() -> Self {
        SchedulerTraits {
            stateful: true,
            homogeneous: false,
        }
    }
}

/// What happens to a job's master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MasterEvent {
    /// Time has passed; comes at least every 50 ms.
    Tick,
    /// A word from a worker.
    From(ToMaster),
    /// A worker's connection was closed.
    Closed(WorkerId),
    /// A worker's process has ended, says the scheduler.
    Exited(WorkerId),
    /// The state manager's answer.
    Record(RequestId, StoreReply<Arc<JobRecord>>),
    /// The state manager's answer, of the record of the job's epochs. Its requests are counted apart from those about the job's record.
    Epochs(RequestId, StoreReply<Arc<EpochsRecord>>),
    /// The scheduler's answer to the call of that order.
    Scheduler(Order, SchedulerAnswer),
    /// These containers, and no others, are to leave their hosts, says the scheduler: again and again, as long as that is so.
    Displaced(Vec<Displaced>),
    /// A user wants something.
    Command(CommandId, Command),
}

/// What a master wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MasterAction {
    /// Send this to the worker, over the connection on which it spoke last; it may be lost.
    To(WorkerId, ToWorker),
    /// Ask the state manager about the job's record.
    Record(RequestId, StoreRequest<Arc<JobRecord>>),
    /// Ask the state manager about the record of the job's epochs.
    Epochs(RequestId, StoreRequest<Arc<EpochsRecord>>),
    /// Drop snapshots that are not needed any more: as [`EpochsAction::Keep`](crate::control::EpochsAction::Keep).
    Keep(Needed),
    /// Call the scheduler.
    Scheduler(Order, SchedulerCall),
    /// Answer a command.
    Reply(CommandId, Result<(), Refused>),
    /// The job is in another phase.
    Phase(JobPhase),
    /// Something that a person may want to read later.
    Note(Note),
    /// The job's record is deleted: remove what else is stored of it, the lease last, and end.
    JobGone,
}

/// What a scheduler is asked for; by level, so that a call may be repeated.
///
/// Each call comes with an [`Order`]. A scheduler remembers the newest that it has carried out for the job, and for each container,
/// and does not carry out an older one, nor one twice.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SchedulerCall {
    /// Have exactly these containers: start those that are missing, stop others, leave those that run.
    Have(Vec<ContainerRequest>),
    /// Stop what runs in this container, and start it again.
    Restart(ContainerId),
    /// Stop all containers. Done when none is left that can be reached.
    Kill,
}

/// A container that a scheduler is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContainerRequest {
    /// The container.
    pub id: ContainerId,
    /// What it needs.
    pub required: Resources,
    /// What the packing policy wants the scheduler to know.
    pub attributes: BTreeMap<String, String>,
}

/// What came of a call to the scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchedulerAnswer {
    /// Carried out.
    Done,
    /// The container has been started again; this is the incarnation of the worker that was started.
    Restarted(u64),
    /// Not possible at the moment, for this reason; it is tried again.
    Failed(String),
}

/// What a master waits for at a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ContainerState {
    /// Nothing: its worker is there.
    Up,
    /// That its worker comes.
    Expected,
    /// The time at which it is started again.
    BackingOff,
    /// The scheduler, which starts it again.
    Restarting,
}

/// A command's number, chosen by whoever sends it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandId(pub u64);

/// What a user may want of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Sources read.
    Activate,
    /// Sources stop reading; everything else stays.
    Deactivate,
    /// The job ends and leaves nothing behind.
    Kill,
    /// The container is stopped and started again.
    Restart(ContainerId),
    /// These vertices get so many instances, while the job runs.
    Update(BTreeMap<VertexName, u32>),
    /// All instances are spread over so many containers, while the job runs.
    Rescale(NonZeroU32),
    /// Something about the job's epochs; of a job with a guarantee only.
    Epochs(EpochsCommand),
    /// Another program is to follow, with the state of this one; of a job with a guarantee only.
    Upgrade(Box<UpgradeOrder>),
}

/// What a job is doing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JobPhase {
    /// Its master reads what is stored of it.
    Reading,
    /// It can't be packed, its record can't be kept, or what it should begin with is damaged or gone, for this reason; it waits to be killed.
    Impossible(String),
    /// Its containers are started and prepared.
    Starting,
    /// It runs.
    Running,
    /// It is there, and its sources don't read.
    Paused,
    /// Workers are missing, and the others go on; or, of a job with lives, the next one has not begun.
    Recovering,
    /// It comes from one plan to the next.
    Updating,
    /// All of it has come to its end by itself; what is left of it is removed.
    Finished,
    /// It ends, because its user wants that.
    Killing,
    /// It is gone.
    Gone,
    /// Its sources read nothing until somebody decides what is to be done, for this reason.
    SafeMode(String),
}

/// Something that a person may want to read later.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Note {
    /// A plan was made.
    Packed(PlanVersion),
    /// A worker has joined.
    Joined(WorkerId),
    /// A worker was refused.
    Turned(WorkerId, Refused),
    /// A worker has not been heard of for a while.
    Suspected(WorkerId),
    /// A worker was given up.
    Died(WorkerId, Cause),
    /// No worker of the container has come in time.
    Missing(ContainerId),
    /// A container will be started again, so long after the master began.
    RestartAt(ContainerId, Duration),
    /// The scheduler could not do something.
    SchedulerFailed(String),
    /// A container leaves its host, which is drained: another is to take its place.
    Moves {
        /// The container.
        container: ContainerId,
        /// The host.
        host: String,
        /// What its instances are to run in.
        to: ContainerId,
    },
    /// A container is to leave its host, which is drained, and no other has room for it.
    Stuck {
        /// The container.
        container: ContainerId,
        /// The host.
        host: String,
        /// What is missing.
        why: String,
    },
    /// The job goes back to the plan that it comes from, for this reason: the next one is given up before anything was changed.
    WentBack(String),
    /// An instance failed, and was started again by its worker.
    Problem(InstanceId, String),
    /// The present life of the job is over since this worker can't go on with it. [That the job goes back](EpochsNote::RollingBack) is told beside it.
    LifeFailed(WorkerId, String),
    /// Something about the job's epochs.
    Epochs(EpochsNote),
}
