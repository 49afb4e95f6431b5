//! JSON types of jobs.

use std::collections::BTreeMap;

use ardea_coordination::control::JobPhase;
use ardea_coordination::packing::{ContainerId, Resources};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{EpochsView, UpgradeView};

/// The phase of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The leader reads the job's state from the metadata store, or the job has no leader at
    /// present.
    #[default]
    Reading,
    /// The job can't be packed, or its initial state is damaged. It waits until it is killed or the
    /// initial state is repaired.
    Impossible,
    /// The job's containers are being started.
    Starting,
    /// The job is running.
    Running,
    /// The job is deployed, and its sources are paused.
    Paused,
    /// Workers are missing, or the job's next attempt has not begun.
    Recovering,
    /// The job changes from one plan to the next.
    Updating,
    /// The job has finished, and the rest of its state is being deleted.
    Finished,
    /// The job can't keep its guarantee automatically. Its sources are paused until an operator
    /// decides.
    SafeMode,
    /// The job is being killed.
    Killing,
    /// The job has ended and been deleted.
    Gone,
}

impl Phase {
    /// Returns the name used in JSON and in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Reading => "reading",
            Phase::Impossible => "impossible",
            Phase::Starting => "starting",
            Phase::Running => "running",
            Phase::Paused => "paused",
            Phase::Recovering => "recovering",
            Phase::Updating => "updating",
            Phase::Finished => "finished",
            Phase::SafeMode => "safe_mode",
            Phase::Killing => "killing",
            Phase::Gone => "gone",
        }
    }

    /// Converts the phase in a leader's view. Returns the phase and its reason, if there is one.
    pub fn of(phase: &JobPhase) -> (Phase, Option<String>) {
        let plain = match phase {
            JobPhase::Reading => Phase::Reading,
            JobPhase::Impossible(why) => return (Phase::Impossible, Some(why.clone())),
            JobPhase::SafeMode(why) => return (Phase::SafeMode, Some(why.clone())),
            JobPhase::Starting => Phase::Starting,
            JobPhase::Running => Phase::Running,
            JobPhase::Paused => Phase::Paused,
            JobPhase::Recovering => Phase::Recovering,
            JobPhase::Updating => Phase::Updating,
            JobPhase::Finished => Phase::Finished,
            JobPhase::Killing => Phase::Killing,
            JobPhase::Gone => Phase::Gone,
        };
        (plain, None)
    }
}

/// The summary of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobSummary {
    /// Name of the job, unique in the cluster.
    pub name: String,
    /// Number of the submission: a random number, in hexadecimal digits.
    pub submission: String,
    /// Current phase.
    pub phase: Phase,
    /// Reason for the phase, if there is one.
    pub reason: Option<String>,
    /// Start of the phase, in milliseconds since 1970; a recovery or an update does not interrupt
    /// the phase `running`.
    pub since_ms: u64,
    /// Number of containers.
    pub container_count: u32,
    /// Number of containers whose worker is alive. Meaningless while the leader changes.
    pub worker_count: u32,
    /// Number of instances.
    pub instance_count: u32,
    /// Version of Ardea that the job's program was built with.
    pub version: String,
    /// Number of containers that have lost their worker and are being restarted.
    #[serde(default)]
    pub restarting_count: u32,
    /// Latest problem of an instance or a container, as far as known to the leader.
    #[serde(default)]
    pub last_problem: Option<ProblemView>,
    /// True while the job's leader changes: no host leads the job, or the containers have not
    /// reported to a new leader yet. The containers keep running, and the numbers come from the
    /// metadata store.
    #[serde(default)]
    pub leader_changes: bool,
}

/// The details of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JobDescription {
    /// The summary.
    #[serde(flatten)]
    pub summary: JobSummary,
    /// Program of the job's containers.
    pub program: ProgramView,
    /// Name of the packing policy.
    pub packing: String,
    /// Name of the scheduler.
    pub scheduler: String,
    /// Settings that differ from their defaults.
    pub settings: BTreeMap<String, String>,
    /// Leader of the job, if there is one.
    pub master: Option<MasterView>,
    /// Epochs and execution attempts, if the job has a guarantee.
    #[serde(default)]
    pub epochs: Option<EpochsView>,
    /// Progress or outcome of the job's latest upgrade.
    #[serde(default)]
    pub upgrade: Option<UpgradeView>,
    /// Vertices, in the order of the graph.
    pub vertices: Vec<VertexView>,
    /// Containers, by number.
    pub containers: Vec<ContainerView>,
    /// Problems of instances and containers, the latest first.
    pub problems: Vec<ProblemView>,
    /// Events of the job, the latest last.
    pub notes: Vec<NoteView>,
}

/// The program of a job's containers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProgramView {
    /// SHA-256 of the package, in hexadecimal digits.
    pub package: String,
    /// Path of the program within the package.
    pub executable: String,
    /// Arguments of the program.
    pub arguments: Vec<String>,
}

/// The leader of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MasterView {
    /// Host that leads the job.
    pub host: String,
    /// Address of the leader for the job's workers.
    pub address: String,
    /// Epoch of the leadership; each new leader has a greater one.
    pub epoch: u64,
}

/// A vertex of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct VertexView {
    /// Name of the vertex.
    pub name: String,
    /// Number of instances.
    pub parallelism: u32,
    /// Resources of each instance.
    pub resources: Resources,
    /// Number of restarts of single instances, without their containers, as far as known to the
    /// leader.
    #[serde(default)]
    pub restarts: u64,
    /// Number of errors and panics of the vertex's instances, as far as known to the leader.
    #[serde(default)]
    pub exceptions: u64,
}

/// The state of a container's worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContainerState {
    /// The worker is alive.
    Up,
    /// The worker has not reported for a while.
    Suspected,
    /// The worker has ended or is lost, and is being restarted.
    Down,
    /// The container is in the plan, and its worker has not registered yet.
    Planned,
}

impl ContainerState {
    /// Returns the name used in JSON and in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            ContainerState::Up => "up",
            ContainerState::Suspected => "suspected",
            ContainerState::Down => "down",
            ContainerState::Planned => "planned",
        }
    }
}

/// A container of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ContainerView {
    /// Number of the container.
    #[schemars(with = "u32")]
    pub id: ContainerId,
    /// State of the container's worker.
    pub state: ContainerState,
    /// Address of the container's machine, if known.
    pub host: Option<String>,
    /// Name of the container's host, as used by `drain`, if the container runs on a host of the
    /// cluster.
    #[serde(default)]
    pub host_name: Option<String>,
    /// Number of bytes of the container's output within the last hour that are no longer retained.
    #[serde(default)]
    pub output_removed_bytes: u64,
    /// Process of the container, as reported by the scheduler: `pid 4711`.
    pub process: Option<String>,
    /// Address of the container's worker for other workers.
    pub address: Option<String>,
    /// Incarnation of the container's worker; each start has a greater one.
    pub incarnation: Option<u64>,
    /// Time of the worker's last report, in milliseconds since 1970.
    pub heard_ms: Option<u64>,
    /// Number of restarts of the container.
    pub restarts: u32,
    /// Resources that the container may use.
    pub required: Resources,
    /// Instances in the container: `counts#3` is the fourth instance of `counts`.
    pub instances: Vec<String>,
    /// Process ids of instances that run in separate processes, by instance, as far as known to the
    /// leader.
    #[serde(default)]
    pub instance_processes: BTreeMap<String, u32>,
    /// Transports of the connections to other containers, by container, as far as known to the
    /// leader: `shm`, `uds`, `tcp`, or a custom one.
    #[serde(default)]
    pub transports: BTreeMap<u32, String>,
}

/// A problem of an instance, or of a container's process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProblemView {
    /// The instance, such as `counts#3`, or the container: `container 2`.
    pub instance: String,
    /// Number of problems of this instance or container so far.
    pub count: u64,
    /// Time of the latest problem, in milliseconds since 1970.
    pub at_ms: u64,
    /// Message of the latest problem.
    pub message: String,
}

/// An event of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NoteView {
    /// Time of the event, in milliseconds since 1970.
    pub at_ms: u64,
    /// Description of the event for users.
    pub text: String,
}

/// The parameters of a request to kill a job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KillQuery {
    /// Kills only this submission, in hexadecimal digits. If not given, the current submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<String>,
}

/// A request to change a job's number of containers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContainersUpdate {
    /// Number of containers over which all instances are spread: from one to the number of
    /// instances.
    pub containers: u32,
}

/// A request to change the parallelism of vertices.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParallelismUpdate {
    /// New number of instances by vertex, for at least one vertex. Other vertices are unchanged.
    pub parallelism: BTreeMap<String, u32>,
}
