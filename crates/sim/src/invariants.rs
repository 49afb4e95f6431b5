//! The invariants of the simulated cluster, and the conditions of recovery.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ardea_coordination::control::{
    Assignment, Change, DesiredState, LeaveReason, MasterStatus, Run, StoreRequest, ToWorker,
    Upgrade, WorkerId,
};
use ardea_coordination::packing::InstanceId;

use crate::metastore::JobRequest;
use crate::simulation::ClusterSimulation;

/// The observations of the job.
#[derive(Debug, Default)]
pub struct InvariantChecker {
    /// The time at which the job was first running with all of its workers.
    pub first_running: Option<Duration>,
    /// The workers that actually run each instance.
    holders: BTreeMap<InstanceId, BTreeSet<WorkerId>>,
    /// The instances that have completed somewhere.
    pub ended: BTreeSet<InstanceId>,
}

impl InvariantChecker {
    pub fn holds(&mut self, worker: WorkerId, instance: &InstanceId) {
        let holders = self.holders.entry(instance.clone()).or_default();
        holders.insert(worker);
    }

    pub fn lets_go(&mut self, worker: WorkerId, instance: &InstanceId) {
        if let Some(holders) = self.holders.get_mut(instance) {
            holders.remove(&worker);
        }
    }
}

impl ClusterSimulation {
    /// Checks that each submission has at most one leader.
    pub fn check_leaders(&mut self) {
        let is_led_twice = |id: &u32| self.leaders(self.led_by(*id)).nth(1).is_some();
        if !self.config.wild_clocks
            && let Some(id) = self.masters.keys().copied().find(is_led_twice)
        {
            let acting: Vec<_> = self.leaders(self.led_by(id)).collect();
            self.breaks(format!("processes {acting:?} all are master"));
        }
    }

    /// Checks that a master never starts an instance that still runs in another worker which the
    /// master does not consider lost.
    pub fn check_assignment(&mut self, id: u32, to: WorkerId, assignment: &Assignment) {
        if self.has_guarantee() {
            // Running instances of an earlier attempt do not matter, since their results are void.
            return self.check_life(self.led_by(id), to, assignment);
        }
        let Some(process) = self.masters.get_mut(&id) else {
            return;
        };
        let told = process.assigned.entry(to).or_default();
        let instances = assignment.instances.iter().cloned();
        let fresh: Vec<_> = instances
            .filter(|instance| told.insert(instance.clone()))
            .collect();
        let aborted = &process.aborted;
        // An instance that already runs there is not started.
        let worker = self.workers.get(&to);
        let runs = worker.map_or(&[][..], |worker| worker.agent.instances());
        for instance in fresh.iter().filter(|instance| !runs.contains(instance)) {
            let holders = self.watch.holders.get(instance).into_iter().flatten();
            let mut others = holders.filter(|holder| holder.container != to.container);
            let counted_on = |holder: &&WorkerId| {
                self.cluster.is_current(**holder) && !aborted.contains(&holder.container)
            };
            if let Some(other) = others.find(counted_on) {
                let broken = format!("worker {to} is assigned {instance}, which {other} runs");
                return self.world.breaks(broken);
            }
        }
    }

    /// Records the workers that a master considers lost.
    pub fn check_note(&mut self, id: u32, note: &MasterStatus) {
        let Some(process) = self.masters.get_mut(&id) else {
            return;
        };
        match note {
            MasterStatus::Died(worker, _) => {
                process.aborted.insert(worker.container);
            }
            MasterStatus::Missing(container) => {
                process.aborted.insert(*container);
            }
            MasterStatus::Joined(worker) => {
                process.aborted.remove(&worker.container);
            }
            MasterStatus::PlanCancelled(_) => {
                self.attempts.report.taken_back += 1;
            }
            _ => {}
        }
    }

    /// Records the newest master epoch that a worker has received.
    pub fn check_message(&mut self, id: WorkerId, message: &ToWorker) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.heard_of = worker.heard_of.max(message.epoch());
        }
    }

    /// Checks that a job is marked as finished only if all of its instances have completed, and
    /// stays finished.
    pub fn check_write(&mut self, request: &JobRequest) {
        let StoreRequest::Write { value, .. } = request else {
            return;
        };
        let stored = self.metastore.record.value.as_ref();
        // Writes of a replaced job fail.
        if stored.is_some_and(|(stored, _)| stored.job != value.job) {
            return;
        }
        let stored = stored.filter(|(stored, _)| stored.epoch <= value.epoch);
        if !value.finished {
            if stored.is_some_and(|(stored, _)| stored.finished && stored.epoch < value.epoch) {
                self.breaks("a finished job is restarted".to_string());
            }
            return;
        }
        if self.has_guarantee() {
            return self.check_finished_lives(value);
        }
        let containers = value.plan.iter().flat_map(|plan| plan.containers());
        let mut instances = containers.flat_map(|container| &container.instances);
        let running = instances.find(|instance| !self.watch.ended.contains(*instance));
        if let Some(instance) = running {
            self.breaks(format!(
                "the job is said to have finished, and {instance} runs"
            ));
        }
    }

    /// Checks that a worker exits only if the job is over or another process has replaced it.
    pub fn check_departure(&mut self, id: WorkerId, why: &LeaveReason) {
        if !self.is_of_present(id) {
            return; // its job was replaced by another
        }
        let record = self.metastore.job();
        let over = record.is_none_or(|record| record.is_ending());
        let plan = record.and_then(|record| record.plan.as_ref());
        let planned = plan.is_some_and(|plan| plan.container(id.container).is_some());
        let replaced = !planned || !self.cluster.is_current(id);
        if !over && (*why == LeaveReason::JobOver || !replaced) {
            self.breaks(format!("worker {id} ends without need: {why:?}"));
        }
    }

    /// Checks that an instance that stays in its container is never stopped, that routes do not go
    /// back, and that commands of earlier masters are ignored.
    pub fn check_change(&mut self, id: WorkerId, change: &Change) {
        if let Some(worker) = self.workers.get_mut(&id) {
            if change.order.epoch < worker.heard_of {
                let (epoch, newest) = (change.order.epoch, worker.heard_of);
                self.world.breaks(format!(
                    "worker {id} obeys {epoch:?} although it knows {newest:?}"
                ));
            }
            let routes = worker.agent.routes();
            if worker.routes > routes {
                self.world.breaks(format!(
                    "worker {id} routes by {routes:?} after {:?}",
                    worker.routes
                ));
            }
            worker.routes = routes;
        }
        if !self.is_of_present(id) {
            return;
        }
        let record = self.metastore.job();
        let plan = record.and_then(|record| record.plan.as_ref());
        let stays = plan.and_then(|plan| plan.container(id.container));
        for instance in change.stop.iter().filter(|_| !change.begins) {
            if stays.is_some_and(|container| container.instances.contains(instance)) {
                self.world
                    .breaks(format!("worker {id} stops {instance}, which belongs there"));
            }
        }
    }

    /// Returns a condition of recovery that is not met yet, or `None`.
    pub fn unrecovered(&self) -> Option<String> {
        if !self.user.is_done() {
            return Some("commands are under way".to_string());
        }
        match &self.metastore.record.value {
            None => self.missing_until_gone(),
            Some((record, _)) if record.is_ending() => Some("the job is being removed".to_string()),
            Some((record, _)) if record.upgrade.as_ref().is_some_and(Upgrade::is_under_way) => {
                let upgrade = record.upgrade.as_ref().map(Upgrade::word);
                Some(format!("the job is being upgraded: {upgrade:?}"))
            }
            Some(_) if !self.masters.keys().all(|id| self.is_of_job(*id)) => {
                Some("masters of a replaced program are there".to_string())
            }
            Some((record, _)) if self.comes_to_an_end() && record.intent == DesiredState::Run => {
                Some(format!("the job has not finished: {}", self.standing()))
            }
            // In a job that completes, containers that are no longer required may be gone.
            Some(_) if self.has_guarantee() && self.comes_to_an_end() => {
                let mut acting = self.acting_masters();
                let master = acting.find_map(|id| self.masters.get(&id)?.candidate.master());
                let steady = master.is_some_and(|master| master.phase().is_steady());
                (!steady).then(|| format!("the master is not settled: {master:?}"))
            }
            Some((record, _)) => {
                let steady = self.missing_until_steady();
                let of_lives = steady.or_else(|| self.missing_of_lives(record.intent));
                of_lives.or_else(|| self.missing_of_drains())
            }
        }
    }

    /// Returns true if a worker belongs to the current job and not to a predecessor.
    fn is_of_present(&self, id: WorkerId) -> bool {
        let worker = self.workers.get(&id);
        worker.is_some_and(|worker| worker.of == self.job.submission)
    }

    /// Returns true if a replaced process continues in place of its successor. If both the
    /// successor and the master that knew of it have died, no process knows of the successor.
    fn is_all_there_is(&self, id: WorkerId) -> bool {
        let mut current = self.cluster.current();
        !self.config.stops_leftovers
            && self.leftovers.contains(&id)
            && !current.any(|other| other.container == id.container)
    }

    fn comes_to_an_end(&self) -> bool {
        self.config.ends_at.is_some() || self.records().is_some()
    }

    /// Describes the state of the workers for a failure report.
    fn standing(&self) -> String {
        let parts = self.workers.iter().map(|(id, worker)| {
            let told = worker.agent.attempt().map(|life| life.generation.0);
            match &worker.part {
                Some(part) => format!("{id}: assigned {told:?}, {}", part.summary()),
                None => format!("{id}: assigned {told:?}, runs nothing"),
            }
        });
        parts.collect::<Vec<_>>().join("; ")
    }

    fn missing_until_gone(&self) -> Option<String> {
        if let Some(worker) = self.workers.keys().next() {
            return Some(format!("worker {worker} of a killed job is there"));
        }
        if let Some(worker) = self.cluster.current().next() {
            return Some(format!("the scheduler has {worker} of a killed job"));
        }
        if !self.masters.is_empty() {
            return Some("masters of a killed job are there".to_string());
        }
        if self.metastore.epochs_of(self.job.submission).is_some() {
            return Some("the record of a killed job's epochs is there".to_string());
        }
        let lease = self.metastore.leader(self.job.submission);
        lease.map(|lease| format!("a killed job has {lease:?}"))
    }

    fn missing_until_steady(&self) -> Option<String> {
        let Some(id) = self.acting_masters().next() else {
            return Some("there is no master".to_string());
        };
        let master = self.masters.get(&id)?.candidate.master();
        let steady = master.is_some_and(|master| master.phase().is_steady() && master.is_settled());
        if !steady {
            return Some(format!("the master is not settled: {master:?}"));
        }
        let (record, _) = self.metastore.record.value.as_ref()?;
        let plan = record.plan.as_ref()?;
        if self.workers.len() != plan.containers().len() {
            let (there, wanted) = (self.workers.len(), plan.containers().len());
            return Some(format!("{there} workers run, {wanted} are wanted"));
        }
        let run = match record.intent {
            DesiredState::Pause => Run::Paused,
            DesiredState::Run | DesiredState::Kill => Run::Running,
        };
        for (worker, container) in self.workers.values().zip(plan.containers()) {
            let id = worker.agent.id();
            let is_placed = id.container == container.id
                && (self.cluster.is_current(id) || self.is_all_there_is(id));
            if !is_placed || !self.is_of_present(id) {
                return Some(format!(
                    "worker {id} is not the one of container {}",
                    container.id
                ));
            }
            if !worker.running.iter().eq(&container.instances) {
                return Some(format!("worker {id} runs {:?}", worker.running));
            }
            if worker.agent.run() != run || worker.agent.routes() != Some(record.plan_version) {
                return Some(format!("worker {id} does not run the newest assignment"));
            }
            for peer in self.workers.keys() {
                let known = worker.agent.peer(peer.container).map(|known| known.worker);
                if known != Some(*peer) {
                    return Some(format!("worker {id} takes {known:?} for {peer}"));
                }
            }
        }
        None
    }
}
