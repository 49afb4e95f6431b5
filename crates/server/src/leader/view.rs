//! A job as its master sees it: plain data, for whoever shows it.

use std::collections::BTreeMap;

use ardea_coordination::control::{
    ContainerState, Intent, JobPhase, JobRef, MasterEpoch, Note, PlanVersion, Upgrade, WorkerId,
};
use ardea_coordination::packing::{ContainerId, InstanceId, Resources};
use ardea_scheduler::Ending;
use serde::{Deserialize, Serialize};

use crate::leader::{EpochsView, Submitted};

/// A job as its master sees it. Times are milliseconds since 1970 by the master's clock.
///
/// What was seen of it (notes, problems, restarts) was seen by its master, and by those before it as far as they could hand it over:
/// what happened in the last seconds before a master died may be missing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobView {
    /// The job.
    pub job: JobRef,
    /// What was submitted, and when.
    pub submitted: Submitted,
    /// Who leads it.
    pub master: MasterView,
    /// What it is doing.
    pub phase: JobPhase,
    /// Since when. A job that runs again after a recovery or a change of plans has run since it first did.
    pub since_ms: u64,
    /// What its user wants of it; nothing while the master reads what is stored.
    pub intent: Option<Intent>,
    /// The plan's number; zero while there is none.
    pub plan: PlanVersion,
    /// Its epochs and lives, if it has a guarantee.
    #[serde(default)]
    pub epochs: Option<EpochsView>,
    /// How far another program has followed its own, or it has followed another.
    #[serde(default)]
    pub upgrade: Option<Upgrade>,
    /// What it waits for, if that does not come by itself: room for its containers.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Its vertices, with how many instances each has, in the order of the graph.
    pub vertices: Vec<VertexView>,
    /// Its containers, by number.
    pub containers: Vec<ContainerView>,
    /// What went wrong in instances, the latest first.
    pub problems: Vec<ProblemView>,
    /// How processes of containers ended that should not have, the latest first.
    pub failures: Vec<FailureView>,
    /// What has happened, the latest last; at most 1,000.
    pub notes: Vec<NoteView>,
}

/// Who leads a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MasterView {
    /// The process, by the name that it has in leases.
    pub holder: String,
    /// Where workers reach it.
    pub address: String,
    /// The number of its mastership.
    pub epoch: MasterEpoch,
}

/// A vertex of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VertexView {
    /// Its name.
    pub name: String,
    /// How many instances it has, by the newest plan.
    pub parallelism: u32,
    /// What each of them takes.
    pub resources: Resources,
    /// What else was said of it when it was submitted, such as the edges that lead into it.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
    /// What its instances had counted under masters before this one, whose metrics are gone.
    #[serde(default)]
    pub before: Counted,
}

/// What the instances of a vertex have counted that tells how it goes with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// How often they were made anew.
    pub restarts: u64,
    /// How many exceptions there were in them.
    pub exceptions: u64,
}

/// A container of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContainerView {
    /// Its number.
    pub id: ContainerId,
    /// What the master waits for.
    pub state: ContainerState,
    /// What it may use.
    pub required: Resources,
    /// What it runs by the newest plan.
    pub instances: Vec<InstanceId>,
    /// Its worker, while it has one.
    pub worker: Option<WorkerView>,
    /// The host that it was started on last, as the scheduler says.
    pub host: Option<String>,
    /// The name in the cluster of that host, if the scheduler knows it.
    pub host_name: Option<String>,
    /// What it is there, as the scheduler says: `pid 4711`.
    pub process: Option<String>,
    /// How often it was started again.
    pub restarts: u32,
    /// Whether it has had a worker, or been started, as far as is known.
    pub has_been: bool,
}

/// A container's worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerView {
    /// Which life of its container it is.
    pub worker: WorkerId,
    /// Where other workers reach it.
    pub address: String,
    /// When it was last heard of.
    pub heard_ms: u64,
    /// Whether it has not been heard of for a while.
    pub suspected: bool,
}

/// What went wrong in an instance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProblemView {
    /// The instance.
    pub instance: InstanceId,
    /// How often.
    pub count: u64,
    /// When it last did.
    pub at_ms: u64,
    /// What it was last.
    pub message: String,
}

/// How the processes of a container ended that should not have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailureView {
    /// The container.
    pub container: ContainerId,
    /// How many did.
    pub count: u64,
    /// When the last one did.
    pub at_ms: u64,
    /// How it did, and what it said last.
    pub message: String,
}

/// Something that has happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NoteView {
    /// When.
    pub at_ms: u64,
    /// What.
    pub what: Happening,
}

/// Something that has happened to a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Happening {
    /// It is in another phase.
    Phase(JobPhase),
    /// What its master has noted.
    Noted(Note),
    /// The process of a container has ended.
    Exited {
        /// Which one.
        worker: WorkerId,
        /// How.
        how: Ending,
        /// What it wrote last to standard error.
        last_words: Vec<String>,
        /// Whether it was to end: the job ends, or does without this container, or it is started again on purpose.
        #[serde(default)]
        expected: bool,
    },
    /// What the scheduler, or this process, wants a person to know.
    Notice {
        /// The container that it is about, if it is about one.
        container: Option<ContainerId>,
        /// What.
        text: String,
    },
}

/// As a person would say it.
impl std::fmt::Display for Happening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Happening::Phase(phase) => write!(f, "the job is {}", phase_in_words(phase)),
            Happening::Noted(note) => noted(f, note),
            Happening::Exited {
                worker,
                how: Ending::Unknown,
                expected: true,
                ..
            } => write!(f, "the process of worker {worker} has ended, as it was to"),
            Happening::Exited {
                worker,
                how,
                last_words,
                ..
            } => {
                let how = ended(how, last_words);
                write!(f, "the process of worker {worker} {how}")
            }
            Happening::Notice { container, text } => match container {
                Some(container) => write!(f, "container {container}: {text}"),
                None => f.write_str(text),
            },
        }
    }
}

/// How a process ended, and what it said of it: the error that it told last, if it told one, else its last line.
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
        JobPhase::Reading => "being read by its master",
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

fn noted(f: &mut std::fmt::Formatter<'_>, note: &Note) -> std::fmt::Result {
    match note {
        Note::Packed(version) => write!(f, "plan {} was made", version.0),
        Note::Joined(worker) => write!(f, "worker {worker} has joined"),
        Note::Turned(worker, why) => write!(f, "worker {worker} was refused: {why}"),
        Note::Suspected(worker) => write!(f, "worker {worker} has not been heard of for a while"),
        Note::Died(worker, cause) => {
            write!(f, "worker {worker} was given up: {}", cause.in_words())
        }
        Note::Missing(container) => {
            write!(f, "no worker of container {container} has come in time")
        }
        Note::RestartAt(container, _) => write!(f, "container {container} will be started again"),
        Note::SchedulerFailed(why) => write!(f, "the scheduler failed: {why}"),
        Note::Moves {
            container,
            host,
            to,
        } => write!(
            f,
            "host {host} is drained: container {to} takes the place of container {container}, on another"
        ),
        Note::Stuck {
            container,
            host,
            why,
        } => write!(
            f,
            "host {host} is drained, and container {container} has to stay there: {why}"
        ),
        Note::WentBack(why) => write!(
            f,
            "the job goes back to the plan that it has, as containers of the next one got no room: {why}"
        ),
        Note::Problem(instance, message) => write!(f, "instance {instance} failed: {message}"),
        Note::LifeFailed(worker, why) => write!(f, "worker {worker} can't go on: {why}"),
        Note::Epochs(note) => write!(f, "{note}"),
    }
}
