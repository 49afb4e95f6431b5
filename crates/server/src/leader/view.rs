//! The view of a job by its leader, as plain data.

use std::collections::BTreeMap;

use ardea_coordination::control::{
    ContainerState, DesiredState, JobPhase, JobRef, MasterEpoch, MasterStatus, PlanVersion,
    Upgrade, WorkerId,
};
use ardea_coordination::packing::{ContainerId, InstanceId, Resources};
use ardea_scheduler::Ending;
use serde::{Deserialize, Serialize};

use crate::leader::{EpochsView, Submitted};

/// The leader's view of a job. Times are milliseconds since 1970 by the leader's clock.
///
/// Notes, problems and restarts include those that earlier leaders have handed over. Events of the
/// last seconds before the crash of a leader may be missing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobView {
    /// The job.
    pub job: JobRef,
    /// The submission.
    pub submitted: Submitted,
    /// The leader.
    pub master: MasterView,
    /// The current phase.
    pub phase: JobPhase,
    /// The start time of the current phase. A recovery or a change of plan does not reset the time
    /// of a running job.
    pub since_ms: u64,
    /// The state requested by the user; `None` until the leader has read the job.
    pub intent: Option<DesiredState>,
    /// The version of the packing plan; zero if there is no plan yet.
    pub plan: PlanVersion,
    /// The epochs and attempts of the job, if it has a processing guarantee.
    #[serde(default)]
    pub epochs: Option<EpochsView>,
    /// The progress of an upgrade, if there is or was one.
    #[serde(default)]
    pub upgrade: Option<Upgrade>,
    /// The resource that the job waits for, such as room for its containers.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// The job's vertices in the order of its graph.
    pub vertices: Vec<VertexView>,
    /// The job's containers, ordered by id.
    pub containers: Vec<ContainerView>,
    /// Problems of the job's instances, latest first.
    pub problems: Vec<ProblemView>,
    /// Unexpected exits of container processes, latest first.
    pub failures: Vec<FailureView>,
    /// Notes on the job's events, oldest first; at most 1,000.
    pub notes: Vec<NoteView>,
}

/// The leader of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MasterView {
    /// The holder name of the leader's process in leases.
    pub holder: String,
    /// The leader's address for the job's workers.
    pub address: String,
    /// The epoch of the leadership; each new leader has a greater one.
    pub epoch: MasterEpoch,
}

/// A vertex of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VertexView {
    /// The vertex's name in the job's graph.
    pub name: String,
    /// The number of instances in the newest plan.
    pub parallelism: u32,
    /// The resources of each instance.
    pub resources: Resources,
    /// Further attributes of the vertex from the submission, such as its incoming edges.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
    /// The failure counters of the vertex's instances under earlier leaders, whose metrics are
    /// lost.
    #[serde(default)]
    pub before: Counted,
}

/// Failure counters of a vertex's instances.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// The number of restarts of the instances.
    pub restarts: u64,
    /// The number of errors and panics of the instances.
    pub exceptions: u64,
}

/// A container of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContainerView {
    /// The container's id.
    pub id: ContainerId,
    /// The container's state.
    pub state: ContainerState,
    /// The resources that the container may use.
    pub required: Resources,
    /// The container's instances in the newest plan.
    pub instances: Vec<InstanceId>,
    /// The container's worker, if it is connected to the leader.
    pub worker: Option<WorkerView>,
    /// The host on which the container was last started, as the scheduler reports it.
    pub host: Option<String>,
    /// The cluster's name for `host`, if the scheduler knows it.
    pub host_name: Option<String>,
    /// The container's process or object on `host`, as the scheduler reports it: `pid 4711`.
    pub process: Option<String>,
    /// The number of restarts of the container, including those under earlier leaders.
    pub restarts: u32,
    /// True if the container is known to have been started.
    pub has_been: bool,
}

/// The worker of a container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerView {
    /// The worker's container and incarnation.
    pub worker: WorkerId,
    /// The worker's address for other workers.
    pub address: String,
    /// The time of the worker's last message to the leader.
    pub heard_ms: u64,
    /// True if the worker's heartbeats are overdue.
    pub suspected: bool,
}

/// The problems of an instance: their number, and the latest one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProblemView {
    /// The instance.
    pub instance: InstanceId,
    /// The number of problems.
    pub count: u64,
    /// The time of the latest one.
    pub at_ms: u64,
    /// The message of the latest problem.
    pub message: String,
}

/// The unexpected exits of a container's processes: their number, and the latest one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailureView {
    /// The container.
    pub container: ContainerId,
    /// The number of exits.
    pub count: u64,
    /// The time of the latest one.
    pub at_ms: u64,
    /// The exit status and the last line of output of the latest exit.
    pub message: String,
}

/// An event of a job with its time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NoteView {
    /// The time, in milliseconds since 1970.
    pub at_ms: u64,
    /// The event.
    pub what: JobTimelineEvent,
}

/// An event of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum JobTimelineEvent {
    /// The job has entered a phase.
    Phase(JobPhase),
    /// A decision or observation of the leader's state machine.
    Noted(MasterStatus),
    /// The process of a container has exited.
    Exited {
        /// The worker whose process has exited.
        worker: WorkerId,
        /// The exit status.
        how: Ending,
        /// The last lines of the worker's standard error.
        last_words: Vec<String>,
        /// True if the exit was expected: the job ends or no longer has the container, or the
        /// container is restarted deliberately.
        #[serde(default)]
        expected: bool,
    },
    /// A notice of the scheduler or of the leader's process.
    Notice {
        /// The container concerned, if any.
        container: Option<ContainerId>,
        /// The text.
        text: String,
    },
}

/// Formats the event as a sentence for users.
impl std::fmt::Display for JobTimelineEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JobTimelineEvent::Phase(phase) => write!(f, "the job is {}", phase_in_words(phase)),
            JobTimelineEvent::Noted(note) => noted(f, note),
            JobTimelineEvent::Exited {
                worker,
                how: Ending::Unknown,
                expected: true,
                ..
            } => write!(f, "the process of worker {worker} has ended as expected"),
            JobTimelineEvent::Exited {
                worker,
                how,
                last_words,
                ..
            } => {
                let how = ended(how, last_words);
                write!(f, "the process of worker {worker} {how}")
            }
            JobTimelineEvent::Notice { container, text } => match container {
                Some(container) => write!(f, "container {container}: {text}"),
                None => f.write_str(text),
            },
        }
    }
}

/// Formats the exit of a process: its status, and the last error line of its output or else the
/// last line.
pub(crate) fn ended(how: &Ending, last_words: &[String]) -> String {
    let mut lines = last_words.iter().rev();
    let error = lines.find(|line| line.starts_with("error: "));
    match error.or(last_words.last()) {
        Some(line) => format!("{how}: {line}"),
        None => how.to_string(),
    }
}

fn phase_in_words(phase: &JobPhase) -> String {
    let words = match phase {
        JobPhase::Reading => "being loaded by its leader",
        JobPhase::Impossible(why) => return format!("not possible: {why}"),
        JobPhase::SafeMode(why) => return format!("in safe mode: {why}"),
        JobPhase::Starting => "being started",
        JobPhase::Running => "running",
        JobPhase::Paused => "paused",
        JobPhase::Recovering => "recovering",
        JobPhase::Updating => "being updated",
        JobPhase::Finished => "finished",
        JobPhase::Killing => "being killed",
        JobPhase::Gone => "gone",
    };
    words.to_string()
}

fn noted(f: &mut std::fmt::Formatter<'_>, note: &MasterStatus) -> std::fmt::Result {
    match note {
        MasterStatus::Packed(version) => write!(f, "plan {} was made", version.0),
        MasterStatus::Joined(worker) => write!(f, "worker {worker} has joined"),
        MasterStatus::Refused(worker, why) => write!(f, "worker {worker} was refused: {why}"),
        MasterStatus::Suspected(worker) => {
            write!(f, "worker {worker} has sent no heartbeat for a while")
        }
        MasterStatus::Died(worker, cause) => {
            write!(f, "worker {worker} was given up: {}", cause.in_words())
        }
        MasterStatus::Missing(container) => {
            write!(
                f,
                "no worker of container {container} has registered in time"
            )
        }
        MasterStatus::RestartAt(container, _) => {
            write!(f, "container {container} will be started again")
        }
        MasterStatus::SchedulerFailed(why) => write!(f, "the scheduler failed: {why}"),
        MasterStatus::Moves {
            container,
            host,
            to,
        } => write!(
            f,
            "host {host} is drained: container {to} replaces container {container}, on another host"
        ),
        MasterStatus::Stuck {
            container,
            host,
            why,
        } => write!(
            f,
            "host {host} is drained, and container {container} has to stay there: {why}"
        ),
        MasterStatus::PlanCancelled(why) => write!(
            f,
            "the job returns to its current plan, because containers of the next plan could not be placed: {why}"
        ),
        MasterStatus::Problem(instance, message) => {
            write!(f, "instance {instance} failed: {message}")
        }
        MasterStatus::AttemptFailed(worker, why) => write!(f, "worker {worker} can't go on: {why}"),
        MasterStatus::Epochs(note) => write!(f, "{note}"),
    }
}
