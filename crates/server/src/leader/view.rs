//! The view of a job by its leader, and the summary stored when the job ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_checkpoint::cluster::recover_command;
use ardea_coordination::control::{
    CheckpointCoordinator, JobMaster, JobRecord, JobRef, PlanVersion, RecordedCheckpoint, Upgrade,
    UpgradeEnd,
};
use ardea_coordination::packing::{ContainerId, ContainerPlan, JobDemand, PackingPlan};
use ardea_coordination::placement::PlacementProposal;
use ardea_rest::{
    ContainerState, ContainerView, JobDescription, JobEnding, JobSummary, MasterView,
    PastJobDescription, PastJobSummary, Phase, ProgramView, UpgradeView, VertexView,
};
use ardea_scheduler::LOCAL;

use crate::leader::clock::now_ms;
use crate::leader::driver::Driver;
use crate::leader::setup::host_of;
use crate::leader::{PastJob, Submitted};

/// Maximum number of event notes stored for an ended job.
const LAST_NOTES: usize = 50;

/// Maximum number of machines stored for an ended job.
const MOST_MACHINES: usize = 100;

/// Maximum number of container ids stored for an ended job.
const MOST_CONTAINERS: usize = 1_000;

/// The leader's view of a job.
#[derive(Clone, PartialEq, Debug)]
pub struct JobView {
    /// The job.
    pub job: JobRef,
    /// The submission.
    pub submitted: Arc<Submitted>,
    /// The job's vertices in the newest plan.
    pub demand: JobDemand,
    /// The version of the packing plan; zero if there is no plan yet.
    pub plan: PlanVersion,
    /// The retained checkpoints as (generation, epoch), oldest first.
    pub checkpoints: Vec<(u64, u64)>,
    /// The (generation, epoch) of those checkpoints that are retained until they are deleted
    /// explicitly, for savepoints.
    pub savepoints: Vec<(u64, u64)>,
    /// The description for users, without the values that are in the job's metrics. The failure
    /// counters of vertices are those under earlier leaders. Events of the last seconds before the
    /// crash of an earlier leader may be missing.
    pub description: JobDescription,
    /// The better placement that the leader has found, if there is one.
    pub proposal: Option<PlacementProposal>,
}

/// Returns the description of a job without a leader, from the submission and, if it is known, the
/// job record.
pub(crate) fn stored_description(
    submitted: &Submitted,
    record: Option<&JobRecord>,
) -> JobDescription {
    let definition = &submitted.definition;
    let plan = record.and_then(|record| record.plan.as_ref());
    let demand = record.map_or(&[][..], |record| &record.demand.vertices);
    let vertices: Vec<VertexView> = demand
        .iter()
        .map(|vertex| VertexView {
            name: vertex.name.to_string(),
            parallelism: vertex.parallelism,
            resources: vertex.resources,
            restarts: 0,
            exceptions: 0,
        })
        .collect();
    let instances = vertices.iter().map(|vertex| vertex.parallelism);
    JobDescription {
        summary: JobSummary {
            name: definition.job.name.clone(),
            submission: format!("{:x}", definition.job.submission),
            since_ms: submitted.at_ms,
            container_count: plan.map_or(0, |plan| count(plan.containers().len())),
            instance_count: instances.fold(0, u32::saturating_add),
            version: definition.version.clone(),
            ..JobSummary::default()
        },
        program: ProgramView {
            package: definition.program.package.clone(),
            executable: definition.program.executable.clone(),
            arguments: definition.program.arguments.clone(),
        },
        packing: definition.packing.clone(),
        scheduler: definition.scheduler.clone(),
        settings: definition.settings.clone(),
        master: None,
        epochs: None,
        upgrade: record.and_then(|record| record.upgrade.as_ref().map(upgrade)),
        vertices,
        containers: Vec::new(),
        problems: Vec::new(),
        notes: Vec::new(),
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

impl Driver {
    /// Returns the view of the job, if this process leads it.
    pub(crate) fn view(&self) -> Option<JobView> {
        let master = self.candidate.master()?;
        let (job, record) = (self.store.job(), master.record());
        let epochs = master.epochs().and_then(CheckpointCoordinator::record);
        let checkpoints = |is_such: fn(&RecordedCheckpoint) -> bool| {
            let kept = epochs.iter().flat_map(|record| &record.checkpoints);
            let kept = kept.filter(|kept| is_such(kept));
            kept.map(|kept| (kept.generation.0, kept.epoch.0)).collect()
        };
        let demand = record.map(|record| record.demand.clone());
        Some(JobView {
            job: job.clone(),
            submitted: Arc::clone(&self.submitted),
            demand: demand.unwrap_or_else(|| JobDemand::new(&*job.name)),
            plan: record.map_or(PlanVersion::default(), |record| record.plan_version),
            checkpoints: checkpoints(|_| true),
            savepoints: checkpoints(|kept| kept.is_savepoint),
            description: self.description(master),
            proposal: self.adaptation.placement.proposal(),
        })
    }

    fn description(&self, master: &JobMaster) -> JobDescription {
        let record = master.record();
        let mut description = stored_description(&self.submitted, record);
        description.master = Some(MasterView {
            host: host_of(&self.setup.holder).to_string(),
            address: self.address.clone(),
            epoch: master.epoch().0,
        });
        let epochs = master.epochs();
        description.epochs = epochs.and_then(|epochs| self.attempt_history.view(epochs));
        for vertex in &mut description.vertices {
            let before = self.event_history.counted_before(&vertex.name);
            (vertex.restarts, vertex.exceptions) = (before.restarts, before.exceptions);
        }
        let plan = record.and_then(|record| record.plan.as_ref());
        let containers = plan.map_or(&[][..], |plan| plan.containers()).iter();
        description.containers = containers.map(|it| self.container(master, it)).collect();
        description.problems = self.event_history.problems();
        description.notes = self.event_history.notes(usize::MAX);
        self.summarize(master, &mut description);
        description
    }

    /// Fills the summary of a description whose other parts are complete.
    fn summarize(&self, master: &JobMaster, description: &mut JobDescription) {
        let (phase, since_ms) = self.event_history.present();
        let (phase, reason) = Phase::of(phase);
        let trouble = || description.epochs.as_ref()?.trouble.clone();
        let reason = match phase {
            Phase::SafeMode => reason.map(|why| with_ways_out(&why, &self.store.job().name)),
            // A job that cannot continue yet shows the reason for the wait.
            Phase::Recovering => reason.or_else(trouble),
            _ => reason,
        };
        let in_state = |state| {
            let containers = description.containers.iter();
            count(containers.filter(|one| one.state == state).count())
        };
        let summary = JobSummary {
            phase,
            reason: reason.or_else(|| master.waits_for()),
            since_ms,
            worker_count: in_state(ContainerState::Up) + in_state(ContainerState::Suspected),
            restarting_count: match starts_again(phase) {
                true => in_state(ContainerState::Down),
                false => 0,
            },
            last_problem: description.problems.first().cloned(),
            ..std::mem::take(&mut description.summary)
        };
        description.summary = summary;
    }

    fn container(&self, master: &JobMaster, container: &ContainerPlan) -> ContainerView {
        let id = container.id;
        let place = self.event_history.place(id);
        let host = place.map(|place| place.host.clone());
        // Containers of the scheduler `local` run on the leader's host.
        let is_local = self.submitted.definition.scheduler == LOCAL && host.is_some();
        let leader = || is_local.then(|| host_of(&self.setup.holder).to_string());
        let host_name = place.and_then(|place| place.host_name.clone());
        let worker = master.worker(id).zip(master.endpoint(id));
        let worker = worker.zip(master.last_heard(id));
        let heard_ms = |heard: Duration| {
            let ago = self.begin.elapsed().saturating_sub(heard);
            now_ms().saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX))
        };
        ContainerView {
            id,
            state: match worker {
                Some((_, (_, true))) => ContainerState::Suspected,
                Some(_) => ContainerState::Up,
                None if self.event_history.has_been(id) => ContainerState::Down,
                None => ContainerState::Planned,
            },
            host,
            host_name: host_name.or_else(leader),
            output_removed_bytes: 0,
            process: place.map(|place| place.process.clone()),
            address: worker.map(|((_, address), _)| address.to_string()),
            incarnation: worker.map(|((worker, _), _)| worker.incarnation),
            heard_ms: worker.map(|(_, (heard, _))| heard_ms(heard)),
            restarts: self.event_history.restarts(id),
            required: container.required,
            instances: container
                .instances
                .iter()
                .map(ToString::to_string)
                .collect(),
            instance_processes: BTreeMap::new(),
            transports: BTreeMap::new(),
        }
    }

    /// Returns the summary to store when the job is deleted, if this process leads it.
    pub(crate) fn past(&self) -> Option<PastJob> {
        let record = self.candidate.master()?.record()?;
        let plan = record.plan.as_ref();
        let problems = self.event_history.problems();
        let is_rolled_back = matches!(record.upgrade, Some(Upgrade::RollingBack(..)));
        let stored = stored_description(&self.submitted, Some(record));
        Some(PastJob {
            job: self.store.job().clone(),
            container_ids: plan.map_or_else(Vec::new, |plan| container_ids(plan)),
            rates: self.measured_edge_rates(),
            description: PastJobDescription {
                summary: PastJobSummary {
                    name: stored.summary.name,
                    submission: stored.summary.submission,
                    ending: match (record.is_being_replaced(), record.finished) {
                        (true, _) if is_rolled_back => JobEnding::RolledBack,
                        (true, _) => JobEnding::Followed,
                        (false, true) => JobEnding::Finished,
                        (false, false) => JobEnding::Killed,
                    },
                    has_run: record.started,
                    submitted_ms: self.submitted.at_ms,
                    ended_ms: now_ms(),
                    container_count: stored.summary.container_count,
                    instance_count: plan.map_or(0, |plan| count(plan.instance_count())),
                    version: stored.summary.version,
                    last_problem: problems.first().cloned(),
                },
                packing: stored.packing,
                scheduler: stored.scheduler,
                machines: self.event_history.machines(MOST_MACHINES),
                problems,
                notes: self.event_history.notes(LAST_NOTES),
            },
        })
    }
}

/// Returns the ids of the plan's containers; an empty list if there are more than
/// [`MOST_CONTAINERS`].
fn container_ids(plan: &PackingPlan) -> Vec<ContainerId> {
    let containers = plan.containers();
    match containers.len() <= MOST_CONTAINERS {
        true => containers.iter().map(|container| container.id).collect(),
        false => Vec::new(),
    }
}

/// Returns the reason for safe mode, followed by the actions that the operator can take.
fn with_ways_out(why: &str, job: &str) -> String {
    let recover = recover_command(job);
    format!("{why}; its sources are paused: fix the cause, then {recover}, or `ardea kill {job}`")
}

/// Returns true if containers are restarted in this phase; false for a job that is ending.
fn starts_again(phase: Phase) -> bool {
    !matches!(phase, Phase::Finished | Phase::Killing | Phase::Gone)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_restarting_of_a_job_that_ends() {
        for ended in [Phase::Finished, Phase::Killing, Phase::Gone] {
            assert!(!starts_again(ended));
        }
        assert!(starts_again(Phase::Recovering) && starts_again(Phase::Running));
    }
}
