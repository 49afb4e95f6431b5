//! Events, actions, commands and configuration of a job master.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{ContainerId, InstanceId, InstanceLimits, PackingPlan, Resources, VertexName};
use serde::{Deserialize, Serialize};

use super::ContainersToMove;
use crate::control::{
    BackoffConfig, Cause, CheckpointCommand, CheckpointRecord, CoordinatorConfig,
    CoordinatorStatus, JobRecord, MembershipConfig, Order, PlanVersion, Rejection, RequestId,
    RequiredCheckpoints, StoreReply, StoreRequest, ToMaster, ToWorker, UpgradeOrder, WorkerId,
};

/// Timeouts and options of a job master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MasterConfig {
    /// The timeouts of the failure detector.
    pub membership: MembershipConfig,
    /// The properties of the scheduler.
    pub scheduler: SchedulerTraits,
    /// The time for which a new master waits for existing workers to register. Then it restarts the
    /// containers of missing workers.
    pub recovery_grace: Duration,
    /// The time in which the worker of a started container must register. Then the container is
    /// restarted.
    pub register_within: Duration,
    /// The delay before a container is restarted.
    pub restart: BackoffConfig,
    /// The time after which an assignment that was not carried out is sent again.
    pub repeat_after: Duration,
    /// The time for which changes of worker addresses are batched before they are sent.
    pub gather_peers: Duration,
    /// The time for which the scheduler may refuse containers of a next plan. Then the change of
    /// plans is cancelled.
    pub room_within: Duration,
    /// The time in which containers of a next plan must start, including restarts. Then the change
    /// of plans is cancelled.
    pub up_within: Duration,
    /// The limits for the number of instances, checked when a user updates the parallelism.
    pub instances: InstanceLimits,
    /// The guarantee and checkpoint settings, or `None` for a job without a guarantee.
    pub epochs: Option<CoordinatorConfig>,
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

/// Properties of a scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchedulerTraits {
    /// True if the master has to request the restart of failed containers; false if the scheduler's
    /// framework restarts them by itself.
    pub stateful: bool,
    /// True if all containers must have the same size.
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

/// An event for a job master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MasterEvent {
    /// Time has passed. Must come at least every 50 ms.
    Tick,
    /// A message from a worker.
    From(ToMaster),
    /// A worker's connection was closed.
    Closed(WorkerId),
    /// The scheduler reports that a worker's process has exited.
    Exited(WorkerId),
    /// A reply of the metadata store about the job's record.
    Record(RequestId, StoreReply<Arc<JobRecord>>),
    /// A reply of the metadata store about the job's checkpoint record. Requests about this record
    /// are numbered separately.
    Epochs(RequestId, StoreReply<Arc<CheckpointRecord>>),
    /// The scheduler's answer to the call with this [`Order`].
    Scheduler(Order, SchedulerAnswer),
    /// The complete list of containers that must leave their hosts. The scheduler repeats the list
    /// as long as it applies.
    Displaced(Vec<ContainersToMove>),
    /// A user's command.
    Command(CommandId, Command),
}

/// An action requested by a job master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MasterAction {
    /// Send a message to the worker over its most recent connection; it may be lost.
    To(WorkerId, ToWorker),
    /// Send a request about the job's record to the metadata store.
    Record(RequestId, StoreRequest<Arc<JobRecord>>),
    /// Send a request about the job's checkpoint record to the metadata store.
    Epochs(RequestId, StoreRequest<Arc<CheckpointRecord>>),
    /// Delete checkpoints that are no longer needed, as
    /// [`CoordinatorAction::Keep`](crate::control::CoordinatorAction::Keep).
    Keep(RequiredCheckpoints),
    /// Call the scheduler.
    Scheduler(Order, SchedulerCall),
    /// Answer a command.
    Reply(CommandId, Result<(), Rejection>),
    /// The job has entered this phase.
    Phase(JobPhase),
    /// Log an event for the user.
    Note(MasterStatus),
    /// The job's record is deleted: remove all other data that is stored of the job, the lease
    /// last, and exit.
    JobGone,
}

/// A call to the scheduler. Calls are declarative, so they may be repeated.
///
/// Each call comes with an [`Order`]. A scheduler remembers the newest order that it has carried
/// out for the job and for each container. It does not carry out a call with an older order, and
/// carries out each call only once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SchedulerCall {
    /// Run exactly these containers: start missing ones, stop others, leave running ones.
    EnsureContainers(Vec<ContainerRequest>),
    /// Stop the processes of this container, and start the container again.
    Restart(ContainerId),
    /// Stop all containers of the job. The call is done when no reachable container is left.
    Kill,
}

/// A container requested from a scheduler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContainerRequest {
    /// The container.
    pub id: ContainerId,
    /// The required resources.
    pub required: Resources,
    /// Attributes that the packing policy has set for the scheduler.
    pub attributes: BTreeMap<String, String>,
}

/// The outcome of a call to the scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchedulerAnswer {
    /// The call was carried out.
    Done,
    /// The container was restarted. Contains the incarnation of the new worker.
    Restarted(u64),
    /// The call cannot be carried out at the moment, for this reason. It is retried.
    Failed(String),
}

/// The state of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ContainerState {
    /// The worker of the container is registered.
    Up,
    /// The master waits for the worker of the container to register.
    Expected,
    /// The master waits for the restart delay of the container.
    BackingOff,
    /// The scheduler is restarting the container.
    Restarting,
}

/// The number of a command, chosen by the sender of the command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandId(pub u64);

/// A user's command for a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Resume the sources.
    Resume,
    /// Pause the sources; everything else keeps running.
    Pause,
    /// Stop the job and remove its state.
    Kill,
    /// Stop the container and start it again.
    Restart(ContainerId),
    /// Change the parallelism of these vertices while the job runs.
    Update(BTreeMap<VertexName, u32>),
    /// Spread all instances over this number of containers while the job runs.
    Rescale(NonZeroU32),
    /// A command for the checkpoint coordinator; only for a job with a guarantee.
    Epochs(CheckpointCommand),
    /// Replace the program by another, with the same state; only for a job with a guarantee.
    Upgrade(Box<UpgradeOrder>),
    /// Move instances between the present containers to where this plan has them, while the job
    /// runs.
    Place(Box<PackingPlan>),
}

/// The phase of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JobPhase {
    /// The master is reading the job's record.
    Reading,
    /// The job cannot be packed, its record cannot be stored, or the state to restore is damaged or
    /// missing, for this reason. The job waits for a user to kill it.
    Impossible(String),
    /// The containers of the job are being started and prepared.
    Starting,
    /// The job runs.
    Running,
    /// The job is deployed, but its sources do not read.
    Paused,
    /// Workers are missing while the others continue, or the next attempt of a job with a guarantee
    /// has not started.
    Recovering,
    /// The job changes from one packing plan to the next.
    Updating,
    /// All instances have completed; the stored data of the job is being removed.
    Finished,
    /// The job is being stopped by a user's command.
    Killing,
    /// The job no longer exists.
    Gone,
    /// The job is in safe mode, for this reason: its sources are paused until a user decides how to
    /// continue.
    SafeMode(String),
}

/// An event to be logged for the user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MasterStatus {
    /// A plan was computed.
    Packed(PlanVersion),
    /// A worker has joined.
    Joined(WorkerId),
    /// The registration of a worker was refused.
    Refused(WorkerId, Rejection),
    /// A worker has sent no message for a while.
    Suspected(WorkerId),
    /// A worker was lost.
    Died(WorkerId, Cause),
    /// No worker of this container has registered in time.
    Missing(ContainerId),
    /// A container will be restarted at this time, counted from the start of the driver's clock.
    RestartAt(ContainerId, Duration),
    /// A call to the scheduler has failed.
    SchedulerFailed(String),
    /// A container on a drained host is replaced by a new container on another host.
    Moves {
        /// The container.
        container: ContainerId,
        /// The host.
        host: String,
        /// The container that takes over its instances.
        to: ContainerId,
    },
    /// A container must leave its drained host, but no other host has room for it.
    Stuck {
        /// The container.
        container: ContainerId,
        /// The host.
        host: String,
        /// The missing resources.
        why: String,
    },
    /// A change of plans was cancelled, for this reason, before any running instance was affected.
    PlanCancelled(String),
    /// An instance failed, and was restarted by its worker.
    Problem(InstanceId, String),
    /// The current attempt has ended, since this worker cannot continue the attempt, for this
    /// reason. The rollback is reported as [another event](CoordinatorStatus::RollingBack).
    AttemptFailed(WorkerId, String),
    /// An event of the checkpoint coordinator.
    Epochs(CoordinatorStatus),
}
