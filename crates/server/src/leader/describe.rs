//! Views of a job for display: the current state, and the summary stored when the job ends.

use ardea_coordination::control::{JobMaster, PlanVersion, Upgrade};
use ardea_coordination::packing::{ContainerId, ContainerPlan, PackingPlan};

use crate::leader::clock::now_ms;
use crate::leader::driver::Driver;
use crate::leader::{ContainerView, JobView, MasterView, PastJob, VertexView, WorkerView};

/// Maximum number of event notes stored for an ended job.
const LAST_NOTES: usize = 50;

/// Maximum number of machines stored for an ended job.
const MOST_MACHINES: usize = 100;

/// Maximum number of container ids stored for an ended job.
const MOST_CONTAINERS: usize = 1_000;

/// Returns the ids of the plan's containers; an empty list if there are more than
/// [`MOST_CONTAINERS`].
fn numbers(plan: &PackingPlan) -> Vec<ContainerId> {
    let containers = plan.containers();
    match containers.len() <= MOST_CONTAINERS {
        true => containers.iter().map(|container| container.id).collect(),
        false => Vec::new(),
    }
}

impl Driver {
    /// Returns the view of the job, if this process leads it.
    pub(crate) fn view(&self) -> Option<JobView> {
        let master = self.candidate.master()?;
        let record = master.record();
        let plan = record.and_then(|record| record.plan.as_ref());
        let containers = plan.map_or(&[][..], |plan| plan.containers());
        let (phase, since_ms) = self.event_history.present();
        let vertices = record.map_or(&[][..], |record| &record.demand.vertices);
        Some(JobView {
            job: self.store.job().clone(),
            submitted: (*self.submitted).clone(),
            master: MasterView {
                holder: self.setup.holder.clone(),
                address: self.address.clone(),
                epoch: master.epoch(),
            },
            phase: phase.clone(),
            since_ms,
            intent: record.map(|record| record.intent),
            plan: record.map_or(PlanVersion::default(), |record| record.plan_version),
            epochs: master
                .epochs()
                .and_then(|epochs| self.attempt_history.view(epochs)),
            upgrade: record.and_then(|record| record.upgrade.clone()),
            waits_for: master.waits_for(),
            vertices: vertices
                .iter()
                .map(|vertex| VertexView {
                    name: vertex.name.as_str().to_string(),
                    parallelism: vertex.parallelism,
                    resources: vertex.resources,
                    attributes: vertex.attributes.clone(),
                    before: self.counted_before(vertex.name.as_str()),
                })
                .collect(),
            containers: containers
                .iter()
                .map(|container| self.container(master, container))
                .collect(),
            problems: self.event_history.problems(),
            failures: self.event_history.failures(),
            notes: self.event_history.notes(usize::MAX),
        })
    }

    fn container(&self, master: &JobMaster, container: &ContainerPlan) -> ContainerView {
        let id = container.id;
        let place = self.event_history.place(id);
        ContainerView {
            id,
            state: master.container(id),
            required: container.required,
            instances: container.instances.clone(),
            worker: self.worker(master, container),
            host: place.map(|place| place.host.clone()),
            host_name: place.and_then(|place| place.host_name.clone()),
            process: place.map(|place| place.process.clone()),
            restarts: self.event_history.restarts(id),
            has_been: self.event_history.has_been(id),
        }
    }

    fn worker(&self, master: &JobMaster, container: &ContainerPlan) -> Option<WorkerView> {
        let worker = master.worker(container.id)?;
        let address = master.endpoint(container.id)?;
        let (heard, suspected) = master.last_heard(container.id)?;
        let ago = self.begin.elapsed().saturating_sub(heard);
        let ago = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        Some(WorkerView {
            worker,
            address: address.to_string(),
            heard_ms: now_ms().saturating_sub(ago),
            suspected,
        })
    }

    /// Returns the summary to store when the job is deleted, if this process leads it.
    pub(crate) fn past(&self) -> Option<PastJob> {
        let master = self.candidate.master()?;
        let record = master.record()?;
        let plan = record.plan.as_ref();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let definition = &self.submitted.definition;
        Some(PastJob {
            job: self.store.job().clone(),
            finished: record.finished,
            followed: record.is_being_replaced(),
            rolled_back: matches!(record.upgrade, Some(Upgrade::RollingBack(..))),
            started: record.started,
            submitted_ms: self.submitted.at_ms,
            ended_ms: now_ms(),
            packing: definition.packing.clone(),
            scheduler: definition.scheduler.clone(),
            version: definition.version.clone(),
            containers: plan.map_or(0, |plan| count(plan.containers().len())),
            container_ids: plan.map_or_else(Vec::new, |plan| numbers(plan)),
            instances: plan.map_or(0, |plan| count(plan.instance_count())),
            machines: self.event_history.machines(MOST_MACHINES),
            problems: self.event_history.problems(),
            failures: self.event_history.failures(),
            notes: self.event_history.notes(LAST_NOTES),
        })
    }
}
