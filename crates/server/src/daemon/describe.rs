//! Descriptions of jobs for the REST interface: those without a leader or with a new one, and
//! values from metrics.

use crate::leader::{JobView, StoredJob, stored_description};
use ardea_coordination::control::DesiredState;
use ardea_core::Error;
use ardea_metrics::{History, catalogue};
use ardea_rest::{ContainerState, JobDescription, JobSummary, Phase, Plans};

use crate::daemon::metrics_view::{left_out_bytes, processes, total, transports};

/// The reason shown for a job whose leader is changing.
const LEADER_CHANGES: &str =
    "its leader is changing; its containers go on, and which of them are up is not known yet";

/// Returns true if the job has had an earlier leader.
fn is_led_again(view: &JobView) -> bool {
    let master = view.description.master.as_ref();
    master.is_some_and(|master| master.epoch > 1)
}

/// Returns true if the job's leader has just been elected and the containers have not reported to
/// it yet.
pub(crate) fn leader_changes(view: &JobView) -> bool {
    let is_unheard = || {
        let mut containers = view.description.containers.iter();
        containers.all(|one| one.state == ContainerState::Planned)
    };
    match view.description.summary.phase {
        Phase::Reading => is_led_again(view),
        Phase::Recovering => is_led_again(view) && is_unheard(),
        _ => false,
    }
}

/// Returns true if a running job has had an earlier leader.
pub(crate) fn has_new_leader(view: &JobView) -> bool {
    let runs = matches!(
        view.description.summary.phase,
        Phase::Reading | Phase::Recovering | Phase::Running | Phase::Paused
    );
    is_led_again(view) && runs
}

/// Returns the summary of a job. Until the containers have reported to a new leader, the numbers
/// come from `stored`.
pub(crate) fn summary_while(view: &JobView, stored: Option<&StoredJob>) -> JobSummary {
    let seen = view.description.summary.clone();
    let Some(master) = view.description.master.as_ref() else {
        return seen;
    };
    if !leader_changes(view) {
        return seen;
    }
    let stored = stored.map(|stored| unled(stored, None));
    let numbers = stored.unwrap_or_else(|| seen.clone());
    JobSummary {
        reason: Some(format!(
            "{LEADER_CHANGES}: {} leads it from now on",
            master.host
        )),
        container_count: numbers.container_count,
        instance_count: numbers.instance_count,
        restarting_count: 0,
        leader_changes: true,
        ..seen
    }
}

/// Returns the summary of a job without a leader, from the stored job and the error (`trouble`)
/// that prevents leadership.
pub(crate) fn unled(stored: &StoredJob, trouble: Option<&Error>) -> JobSummary {
    unled_description(stored, trouble).summary
}

/// Returns the summary of a job whose stored value is unreadable.
pub(crate) fn unreadable(name: String, error: &Error) -> JobSummary {
    JobSummary {
        name,
        phase: Phase::Impossible,
        reason: Some(error.to_string()),
        ..JobSummary::default()
    }
}

/// Returns the description of a job without a leader; see [`unled`].
pub(crate) fn unled_description(stored: &StoredJob, trouble: Option<&Error>) -> JobDescription {
    let mut description = stored_description(&stored.submitted, Some(&stored.record));
    let is_killed = stored.record.intent == DesiredState::Kill;
    let summary = &mut description.summary;
    summary.phase = match is_killed {
        true => Phase::Killing,
        false => Phase::Reading,
    };
    summary.reason = Some(match trouble {
        Some(trouble) => format!("it has no leader at the moment: {trouble}"),
        None if is_killed => "it has no leader at the moment".into(),
        None => LEADER_CHANGES.to_string(),
    });
    summary.leader_changes = trouble.is_none() && !is_killed;
    description
}

/// Adds the values of the job's metrics to the description by its leader.
pub(crate) fn add_metrics(description: &mut JobDescription, history: &History) {
    for vertex in &mut description.vertices {
        let total = |metric| total(history, metric, &vertex.name);
        let (restarts, exceptions) = (total(&catalogue::RESTARTS), total(&catalogue::EXCEPTIONS));
        vertex.restarts = vertex.restarts.saturating_add(restarts);
        vertex.exceptions = vertex.exceptions.saturating_add(exceptions);
    }
    for container in &mut description.containers {
        container.output_removed_bytes = left_out_bytes(history, container.id);
        container.instance_processes = processes(history, container.id);
        container.transports = transports(history, container.id);
        let instances = &container.instances;
        let processes = &mut container.instance_processes;
        processes.retain(|instance, _| instances.contains(instance));
    }
}

/// Returns the plans of a job, from the stored job and, if there is a leader, its view.
pub(crate) fn plans(stored: &StoredJob, view: Option<&JobView>) -> Plans {
    let record = &stored.record;
    let packing = record.plan.as_ref();
    let packing = packing.map(|plan| (record.plan_version.0, (**plan).clone()));
    let containers = view.map_or(&[][..], |view| &view.description.containers);
    Plans::of(&record.demand, packing, containers)
}
