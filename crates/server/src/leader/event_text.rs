//! The texts of a job's events, as sentences for users.

use ardea_coordination::control::{JobPhase, MasterStatus};
use ardea_scheduler::Ending;

/// Formats the exit of a process: its status, and the last error line of its output or else the
/// last line.
pub(crate) fn exit_text(how: &Ending, last_words: &[String]) -> String {
    let mut lines = last_words.iter().rev();
    let error = lines.find(|line| line.starts_with("error: "));
    match error.or(last_words.last()) {
        Some(line) => format!("{how}: {line}"),
        None => how.to_string(),
    }
}

/// Describes a phase of the job.
pub(crate) fn phase_text(phase: &JobPhase) -> String {
    let words: &str = match phase {
        JobPhase::Reading => "being loaded by its leader",
        JobPhase::Impossible(why) => &format!("not possible: {why}"),
        JobPhase::SafeMode(why) => &format!("in safe mode: {why}"),
        JobPhase::Starting => "being started",
        JobPhase::Running => "running",
        JobPhase::Paused => "paused",
        JobPhase::Recovering => "recovering",
        JobPhase::Updating => "being updated",
        JobPhase::Finished => "finished",
        JobPhase::Killing => "being killed",
        JobPhase::Gone => "gone",
    };
    format!("the job is {words}")
}

/// Describes a decision or observation of the leader's state machine.
pub(crate) fn status_text(status: &MasterStatus) -> String {
    match status {
        MasterStatus::Packed(version) => format!("plan {} was made", version.0),
        MasterStatus::Joined(worker) => format!("worker {worker} has joined"),
        MasterStatus::Refused(worker, why) => format!("worker {worker} was refused: {why}"),
        MasterStatus::Suspected(worker) => {
            format!("worker {worker} has sent no heartbeat for a while")
        }
        MasterStatus::Died(worker, cause) => {
            format!("worker {worker} was given up: {}", cause.in_words())
        }
        MasterStatus::Missing(container) => {
            format!("no worker of container {container} has registered in time")
        }
        MasterStatus::RestartAt(container, _) => {
            format!("container {container} will be started again")
        }
        MasterStatus::SchedulerFailed(why) => format!("the scheduler failed: {why}"),
        MasterStatus::Moves {
            container,
            host,
            to,
        } => format!(
            "host {host} is drained: container {to} replaces container {container}, on another host"
        ),
        MasterStatus::Stuck {
            container,
            host,
            why,
        } => format!("host {host} is drained, and container {container} has to stay there: {why}"),
        MasterStatus::PlanCancelled(why) => format!(
            "the job returns to its current plan, because containers of the next plan could not be placed: {why}"
        ),
        MasterStatus::Problem(instance, message) => {
            format!("instance {instance} failed: {message}")
        }
        MasterStatus::AttemptFailed(worker, why) => format!("worker {worker} can't go on: {why}"),
        MasterStatus::Epochs(note) => note.to_string(),
    }
}
