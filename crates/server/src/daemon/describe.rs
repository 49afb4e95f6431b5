//! Conversion of a job's view for the REST interface.

use crate::leader::{FailureView, JobView, StoredJob};
use ardea_checkpoint::cluster::recover_command;
use ardea_coordination::control::{DesiredState, JobDefinition, JobPhase, Upgrade, UpgradeEnd};
use ardea_core::Error;
use ardea_metrics::{History, catalogue};
use ardea_rest::{
    ContainerState, ContainerView, EpochsView, JobDescription, JobSummary, MasterView, NoteView,
    Phase, Plans, ProblemView, ProgramView, UpgradeView, VertexView,
};
use ardea_scheduler::LOCAL;

use crate::daemon::host_registry::host_of;
use crate::daemon::metrics_view::{left_out_bytes, processes, total};

/// Returns the summary of a job from the view of its leader.
pub(crate) fn summary(view: &JobView) -> JobSummary {
    let (phase, reason) = Phase::of(&view.phase);
    let reason = reason.map(|why| match phase {
        Phase::SafeMode => with_ways_out(&why, &view.job.name),
        _ => why,
    });
    // A job that cannot continue yet shows the reason for the wait.
    let waits = || view.epochs.as_ref()?.trouble.clone();
    let reason = match phase {
        Phase::Recovering => reason.or_else(waits),
        _ => reason,
    };
    let reason = reason.or_else(|| view.waits_for.clone());
    let workers = view.containers.iter().filter(|one| one.worker.is_some());
    let restarting = view.containers.iter();
    let restarting =
        restarting.filter(|one| starts_again(phase) && state(one) == ContainerState::Down);
    let instances = view.vertices.iter().map(|vertex| vertex.parallelism);
    JobSummary {
        name: view.job.name.clone(),
        submission: format!("{:x}", view.job.submission),
        phase,
        reason,
        since_ms: view.since_ms,
        container_count: count(view.containers.len()),
        worker_count: count(workers.count()),
        instance_count: instances.sum(),
        version: view.submitted.definition.version.clone(),
        restarting_count: count(restarting.count()),
        last_problem: problems(&view.problems, &view.failures).into_iter().next(),
        leader_changes: false,
    }
}

/// The reason shown for a job whose leader is changing.
const LEADER_CHANGES: &str =
    "its leader is changing; its containers go on, and which of them are up is not known yet";

/// Returns true if the job's leader has just been elected and the containers have not reported to
/// it yet.
pub(crate) fn leader_changes(view: &JobView) -> bool {
    let is_later = view.master.epoch.0 > 1;
    let is_unheard = || {
        let mut containers = view.containers.iter();
        !containers.any(|one| one.worker.is_some() || one.has_been)
    };
    match view.phase {
        JobPhase::Reading => is_later,
        JobPhase::Recovering => is_later && is_unheard(),
        _ => false,
    }
}

/// Returns true if a running job has had an earlier leader.
pub(crate) fn has_new_leader(view: &JobView) -> bool {
    let runs = matches!(
        view.phase,
        JobPhase::Reading | JobPhase::Recovering | JobPhase::Running | JobPhase::Paused
    );
    view.master.epoch.0 > 1 && runs
}

/// Returns the summary of a job. Until the containers have reported to a new leader, the numbers
/// come from `stored`.
pub(crate) fn summary_while(view: &JobView, stored: Option<&StoredJob>) -> JobSummary {
    let seen = summary(view);
    if !leader_changes(view) {
        return seen;
    }
    let stored = stored.map(|stored| unled(stored, None));
    let numbers = stored.unwrap_or_else(|| seen.clone());
    JobSummary {
        reason: Some(format!(
            "{LEADER_CHANGES}: {} leads it from now on",
            host_of(&view.master.holder)
        )),
        container_count: numbers.container_count,
        instance_count: numbers.instance_count,
        restarting_count: 0,
        leader_changes: true,
        ..seen
    }
}

/// Returns the reason for safe mode, followed by the actions that the operator can take.
fn with_ways_out(why: &str, job: &str) -> String {
    let recover = recover_command(job);
    format!("{why}; its sources are paused: fix the cause, then {recover}, or `ardea kill {job}`")
}

/// Converts the epochs and attempts of a job.
fn epochs(seen: &crate::leader::EpochsView) -> EpochsView {
    let newest = seen.newest;
    EpochsView {
        guarantee: seen.guarantee.clone(),
        life: seen.life,
        has_begun: seen.has_begun,
        restored_from: seen.restored_from,
        restored_in_ms: seen.restored_in_ms,
        committed: seen.committed,
        is_published: seen.is_published,
        committed_ms: newest.map(|newest| newest.at_ms),
        took_ms: newest.map(|newest| newest.took_ms),
        written_bytes: newest.map(|newest| newest.bytes),
        committed_count: seen.committed_count,
        aborted_count: seen.aborted_count,
        rolled_back_count: seen.rolled_back_count,
        safe_mode: seen.safe_mode.clone(),
        trouble: seen.trouble.clone(),
    }
}

/// Converts the progress of an upgrade.
fn upgrade(seen: &Upgrade) -> UpgradeView {
    let other = match seen {
        Upgrade::Stopping(order) | Upgrade::Stopped(order, _) => {
            order.next.definition.job.submission
        }
        Upgrade::Starting(before) | Upgrade::RollingBack(before, _) => {
            before.job.definition.job.submission
        }
        Upgrade::Over(UpgradeEnd::Upgraded { from: other })
        | Upgrade::Over(UpgradeEnd::RolledBack { tried: other, .. }) => *other,
    };
    UpgradeView {
        stage: seen.word().to_string(),
        text: seen.to_string(),
        why: seen.why().map(str::to_string),
        other: Some(format!("{other:x}")),
    }
}

/// Returns true if containers are restarted in this phase; false for a job that is ending.
fn starts_again(phase: Phase) -> bool {
    !matches!(phase, Phase::Finished | Phase::Killing | Phase::Gone)
}

/// Returns the summary of a job without a leader, from the stored job and the error (`trouble`)
/// that prevents leadership.
pub(crate) fn unled(stored: &StoredJob, trouble: Option<&Error>) -> JobSummary {
    let record = &stored.record;
    let containers = record
        .plan
        .as_ref()
        .map_or(0, |plan| plan.containers().len());
    JobSummary {
        name: record.job.name.clone(),
        submission: format!("{:x}", record.job.submission),
        phase: match record.intent {
            DesiredState::Kill => Phase::Killing,
            DesiredState::Run | DesiredState::Pause => Phase::Reading,
        },
        reason: Some(match trouble {
            Some(trouble) => format!("it has no leader at the moment: {trouble}"),
            None if record.intent == DesiredState::Kill => "it has no leader at the moment".into(),
            None => LEADER_CHANGES.to_string(),
        }),
        since_ms: stored.submitted.at_ms,
        container_count: count(containers),
        worker_count: 0,
        instance_count: u32::try_from(record.demand.instance_count()).unwrap_or(u32::MAX),
        version: stored.submitted.definition.version.clone(),
        restarting_count: 0,
        last_problem: None,
        leader_changes: trouble.is_none() && record.intent != DesiredState::Kill,
    }
}

/// Returns the summary of a job whose stored value is unreadable.
pub(crate) fn unreadable(name: String, error: &Error) -> JobSummary {
    JobSummary {
        name,
        submission: String::new(),
        phase: Phase::Impossible,
        reason: Some(error.to_string()),
        since_ms: 0,
        container_count: 0,
        worker_count: 0,
        instance_count: 0,
        version: String::new(),
        restarting_count: 0,
        last_problem: None,
        leader_changes: false,
    }
}

/// Returns the description of a job from the view of its leader.
pub(crate) fn description(view: &JobView, history: Option<&History>) -> JobDescription {
    let definition = &view.submitted.definition;
    JobDescription {
        summary: summary(view),
        program: program(definition),
        packing: definition.packing.clone(),
        scheduler: definition.scheduler.clone(),
        settings: definition.settings.clone(),
        master: Some(MasterView {
            host: host_of(&view.master.holder).to_string(),
            address: view.master.address.clone(),
            epoch: view.master.epoch.0,
        }),
        epochs: view.epochs.as_ref().map(epochs),
        upgrade: view.upgrade.as_ref().map(upgrade),
        vertices: vertices(view, history),
        containers: containers(view, history),
        problems: problems(&view.problems, &view.failures),
        notes: notes(&view.notes),
    }
}

/// Returns the description of a job without a leader.
pub(crate) fn unled_description(stored: &StoredJob, trouble: Option<&Error>) -> JobDescription {
    let definition = &stored.submitted.definition;
    let demand = &stored.record.demand;
    JobDescription {
        summary: unled(stored, trouble),
        program: program(definition),
        packing: definition.packing.clone(),
        scheduler: definition.scheduler.clone(),
        settings: definition.settings.clone(),
        master: None,
        epochs: None,
        upgrade: stored.record.upgrade.as_ref().map(upgrade),
        vertices: demand
            .vertices
            .iter()
            .map(|vertex| VertexView {
                name: vertex.name.to_string(),
                parallelism: vertex.parallelism,
                resources: vertex.resources,
                restarts: 0,
                exceptions: 0,
            })
            .collect(),
        containers: Vec::new(),
        problems: Vec::new(),
        notes: Vec::new(),
    }
}

/// Returns the plans of a job, from the stored job and, if there is a leader, its view.
pub(crate) fn plans(stored: &StoredJob, view: Option<&JobView>) -> Plans {
    let record = &stored.record;
    let packing = record.plan.as_ref();
    let packing = packing.map(|plan| (record.plan_version.0, (**plan).clone()));
    let containers = view.map_or_else(Vec::new, |view| containers(view, None));
    Plans::of(&record.demand, packing, &containers)
}

fn program(definition: &JobDefinition) -> ProgramView {
    ProgramView {
        package: definition.program.package.clone(),
        executable: definition.program.executable.clone(),
        arguments: definition.program.arguments.clone(),
    }
}

fn vertices(view: &JobView, history: Option<&History>) -> Vec<VertexView> {
    let vertices = view.vertices.iter().map(|vertex| {
        let total = |metric| history.map_or(0, |history| total(history, metric, &vertex.name));
        VertexView {
            name: vertex.name.clone(),
            parallelism: vertex.parallelism,
            resources: vertex.resources,
            restarts: vertex
                .before
                .restarts
                .saturating_add(total(&catalogue::RESTARTS)),
            exceptions: vertex
                .before
                .exceptions
                .saturating_add(total(&catalogue::EXCEPTIONS)),
        }
    });
    vertices.collect()
}

/// Converts the containers of a job. The process ids of instances are taken from the metrics in
/// `history`.
fn containers(view: &JobView, history: Option<&History>) -> Vec<ContainerView> {
    let containers = view.containers.iter().map(|container| {
        let worker = container.worker.as_ref();
        let instances: Vec<String> = container
            .instances
            .iter()
            .map(ToString::to_string)
            .collect();
        let known = history.map(|history| processes(history, container.id));
        let mut instance_processes = known.unwrap_or_default();
        instance_processes.retain(|instance, _| instances.contains(instance));
        ContainerView {
            id: container.id,
            state: state(container),
            host: container.host.clone(),
            host_name: host_name(view, container),
            output_removed_bytes: history
                .map_or(0, |history| left_out_bytes(history, container.id)),
            process: container.process.clone(),
            address: worker.map(|worker| worker.address.clone()),
            incarnation: worker.map(|worker| worker.worker.incarnation),
            heard_ms: worker.map(|worker| worker.heard_ms),
            restarts: container.restarts,
            required: container.required,
            instances,
            instance_processes,
        }
    });
    containers.collect()
}

/// Returns the name of a container's host. Containers of the scheduler `local` run on the leader's
/// host.
pub(crate) fn host_name(
    view: &JobView,
    container: &crate::leader::ContainerView,
) -> Option<String> {
    let leader = || {
        let is_local = view.submitted.definition.scheduler == LOCAL && container.host.is_some();
        is_local.then(|| host_of(&view.master.holder).to_string())
    };
    container.host_name.clone().or_else(leader)
}

/// Returns the state of a container according to its worker.
fn state(container: &crate::leader::ContainerView) -> ContainerState {
    match &container.worker {
        Some(worker) if worker.suspected => ContainerState::Suspected,
        Some(_) => ContainerState::Up,
        None if container.has_been => ContainerState::Down,
        None => ContainerState::Planned,
    }
}

/// Returns the problems of instances and containers, latest first. The exit of a container's
/// process is left out if an instance reported the same error.
pub(crate) fn problems(
    of_instances: &[crate::leader::ProblemView],
    of_containers: &[FailureView],
) -> Vec<ProblemView> {
    let views = of_instances.iter().map(|problem| ProblemView {
        instance: problem.instance.to_string(),
        count: problem.count,
        at_ms: problem.at_ms,
        message: problem.message.clone(),
    });
    let is_told = |failure: &&FailureView| {
        let told = failure.message.split_once(": error: ");
        let mut problems = of_instances.iter();
        told.is_none_or(|(_, error)| !problems.any(|it| it.message.starts_with(error)))
    };
    let of_containers = of_containers.iter().filter(is_told);
    let of_containers = of_containers.map(|failure| ProblemView {
        instance: format!("container {}", failure.container),
        count: failure.count,
        at_ms: failure.at_ms,
        message: failure.message.clone(),
    });
    let mut problems: Vec<_> = views.chain(of_containers).collect();
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.at_ms));
    problems
}

pub(crate) fn notes(notes: &[crate::leader::NoteView]) -> Vec<NoteView> {
    let notes = notes.iter().map(|note| NoteView {
        at_ms: note.at_ms,
        text: note.what.to_string(),
    });
    notes.collect()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use ardea_coordination::packing::{ContainerId, InstanceId};

    use super::*;

    #[test]
    fn nothing_is_restarting_of_a_job_that_ends() {
        for ended in [Phase::Finished, Phase::Killing, Phase::Gone] {
            assert!(!starts_again(ended));
        }
        assert!(starts_again(Phase::Recovering) && starts_again(Phase::Running));
    }

    #[test]
    fn a_process_that_ended_by_an_error_of_an_instance_is_no_second_problem() {
        let problem = crate::leader::ProblemView {
            instance: InstanceId::new("lines", 0),
            count: 3,
            at_ms: 10,
            message: "ARD-301: cannot read x; check the path".into(),
        };
        let failure = |container, message: &str| FailureView {
            container: ContainerId(container),
            count: 1,
            at_ms: 20,
            message: message.into(),
        };
        let failures = [
            failure(
                1,
                "its process ended with code 3: error: ARD-301: cannot read x",
            ),
            failure(2, "its process was ended by signal 9"),
        ];
        let told = problems(&[problem], &failures);
        let whose: Vec<_> = told.iter().map(|it| it.instance.as_str()).collect();
        assert_eq!(whose, ["container 2", "lines#0"]);
    }
}
