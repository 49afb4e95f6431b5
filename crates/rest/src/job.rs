//! Jobs, as they are told.

use std::collections::BTreeMap;

use ardea_coordination::control::JobPhase;
use ardea_coordination::packing::{ContainerId, Resources};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{EpochsView, UpgradeView, foreign};

/// What a job is doing, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its master reads what is stored of it, or it has none at the moment.
    Reading,
    /// It can't be packed, or what it should begin with is damaged; it waits to be killed, or for that to be restored.
    Impossible,
    /// Its containers are started and prepared.
    Starting,
    /// It runs.
    Running,
    /// It is there, and its sources don't read.
    Paused,
    /// Workers are missing, or its next life has not begun.
    Recovering,
    /// It comes from one plan to the next.
    Updating,
    /// It has come to its end by itself; what is left of it is removed.
    Finished,
    /// It has a guarantee, and can't keep it by itself any more: its sources read nothing until somebody decides.
    SafeMode,
    /// It ends, because somebody wants that.
    Killing,
    /// It is gone.
    Gone,
}

impl Phase {
    /// As it is written in JSON, and for people.
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

    /// The phase of a job's master, and why it is in it where there is a reason.
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

/// A job, in a line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JobSummary {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Which submission of that name: a random number, in hexadecimal digits.
    pub submission: String,
    /// What it is doing.
    pub phase: Phase,
    /// Why, where that needs a reason.
    pub reason: Option<String>,
    /// Since when it has been in this phase, in milliseconds since 1970; a recovery or an update does not end that it runs.
    pub since_ms: u64,
    /// How many containers it has.
    pub container_count: u32,
    /// How many of them have a worker that is heard of; of no meaning while the leader changes.
    pub worker_count: u32,
    /// How many instances it has.
    pub instance_count: u32,
    /// The version of Ardea that its program was built with.
    pub version: String,
    /// How many of its containers have lost their worker, and are being started again.
    #[serde(default)]
    pub restarting_count: u32,
    /// What went wrong last in an instance or a container, as far as its master knows.
    #[serde(default)]
    pub last_problem: Option<ProblemView>,
    /// Whether its leader is changing: no host leads it at the moment, or one has just begun to and has not heard of its
    /// containers yet. They go on meanwhile. The numbers are those that are stored.
    #[serde(default)]
    pub leader_changes: bool,
}

/// All that is known of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JobDescription {
    /// In a line.
    #[serde(flatten)]
    pub summary: JobSummary,
    /// What its containers run.
    pub program: ProgramView,
    /// The packing policy, by name.
    pub packing: String,
    /// The scheduler, by name.
    pub scheduler: String,
    /// The settings that differ from their defaults.
    pub settings: BTreeMap<String, String>,
    /// Who leads it, if anybody does.
    pub master: Option<MasterView>,
    /// Its epochs and lives, if it has a guarantee.
    #[serde(default)]
    pub epochs: Option<EpochsView>,
    /// How far another program has followed its own, or it has followed another; what came of it stays.
    #[serde(default)]
    pub upgrade: Option<UpgradeView>,
    /// Its vertices, in the order of its graph.
    pub vertices: Vec<VertexView>,
    /// Its containers, by number.
    pub containers: Vec<ContainerView>,
    /// What went wrong in instances and with containers, the latest first.
    pub problems: Vec<ProblemView>,
    /// What has happened, the latest last.
    pub notes: Vec<NoteView>,
}

/// What the containers of a job run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProgramView {
    /// The SHA-256 of the package, in hexadecimal digits.
    pub package: String,
    /// The program within it.
    pub executable: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// The master of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MasterView {
    /// The host on which it runs.
    pub host: String,
    /// Where its workers reach it.
    pub address: String,
    /// The number of its mastership.
    pub epoch: u64,
}

/// A vertex of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct VertexView {
    /// Its name.
    pub name: String,
    /// How many instances it has.
    pub parallelism: u32,
    /// What each of them takes.
    #[schemars(with = "foreign::Resources")]
    pub resources: Resources,
    /// How often instances of it were started again by themselves, while their containers went on; as far as its master knows.
    #[serde(default)]
    pub restarts: u64,
    /// How often instances of it failed, with an error or a panic; as far as its master knows.
    #[serde(default)]
    pub exceptions: u64,
}

/// Whether a container has a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContainerState {
    /// It has one.
    Up,
    /// It has one that has not been heard of for a while.
    Suspected,
    /// It has none any more: what ran in it has ended or is lost, and is started again.
    Down,
    /// It has had none yet: it is in the plan, and perhaps just being started.
    Planned,
}

impl ContainerState {
    /// As it is written in JSON, and for people.
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
    /// Its number.
    #[schemars(with = "u32")]
    pub id: ContainerId,
    /// Whether it has a worker.
    pub state: ContainerState,
    /// The address of the machine that it is on, if that is known.
    pub host: Option<String>,
    /// The name of the host that it is on, which `drain` takes, if a host runs it and it is known which.
    #[serde(default)]
    pub host_name: Option<String>,
    /// The number of bytes that it has written to its output within the last hour and that are not kept any more.
    #[serde(default)]
    pub output_left_out_bytes: u64,
    /// What it is there, in the words of the scheduler: `pid 4711`.
    pub process: Option<String>,
    /// Where other workers reach its worker.
    pub address: Option<String>,
    /// Which life of its worker this is.
    pub incarnation: Option<u64>,
    /// When its worker was last heard of, in milliseconds since 1970.
    pub heard_ms: Option<u64>,
    /// How often it was started again.
    pub restarts: u32,
    /// What it may use.
    #[schemars(with = "foreign::Resources")]
    pub required: Resources,
    /// What it runs: `counts#3` is the fourth instance of `counts`.
    pub instances: Vec<String>,
    /// The numbers of the processes of those instances that have one of their own, on the container's host; as far as its master knows.
    #[serde(default)]
    pub instance_processes: BTreeMap<String, u32>,
}

/// What went wrong in an instance, or with the process of a container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProblemView {
    /// The instance, such as `counts#3`, or the container: `container 2`.
    pub instance: String,
    /// How often something went wrong in it.
    pub count: u64,
    /// When it last did, in milliseconds since 1970.
    pub at_ms: u64,
    /// What went wrong last.
    pub message: String,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NoteView {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What, for people.
    pub text: String,
}

/// What is to be killed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KillQuery {
    /// This submission only, in hexadecimal digits; if not said, whatever has the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<String>,
}

/// Another number of containers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContainersUpdate {
    /// How many containers all instances are spread over, one at least; one for each instance at the most.
    pub containers: u32,
}

/// Other numbers of instances.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParallelismUpdate {
    /// How many instances each of these vertices gets, one of them at least; all others keep theirs.
    pub parallelism: BTreeMap<String, u32>,
}
