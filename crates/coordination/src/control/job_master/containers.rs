//! The containers of a job: the set of required containers, the wait for their workers to register,
//! and restarts.

use std::sync::Arc;
use std::time::Duration;

use crate::packing::{ContainerId, InstanceId, PackingPlan};

use super::scheduler_calls::Subject;
use super::workers::Worker;
use super::{
    ContainerRequest, ContainerState, JobMaster, MasterAction, MasterStatus, SchedulerAnswer,
    SchedulerCall, ShutdownPhase,
};
use crate::control::{Backoff, Cause, MemberEvent, PlanVersion, Rejection, WorkerId};

/// A container that the job requires.
#[derive(Debug)]
pub(super) struct Container {
    /// The instances of the container by the plan. During a change of plans, the stage determines
    /// the instances that run.
    pub(super) instances: Arc<[InstanceId]>,
    state: State,
    backoff: Backoff,
    /// The lowest incarnation of a worker whose exit is relevant. Exits of earlier ones are
    /// ignored.
    newest_start: u64,
    /// After a takeover, the time until which an unknown running worker may register. This applies
    /// even after a worker has registered, since that worker may have been replaced by a later one.
    unheard_until: Option<Duration>,
    /// The time since which the master has waited for the first worker of the container.
    awaited_since: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The worker of the container is registered.
    Up,
    /// A worker of the container must register until this time.
    Expected(Duration),
    /// The container is restarted at this time.
    RestartAt(Duration),
    /// The scheduler was requested to restart the container. Contains the worker that was
    /// registered at the request, if any.
    Restarting(Option<WorkerId>),
}

impl Container {
    pub(super) fn state(&self) -> ContainerState {
        match self.state {
            State::Up => ContainerState::Up,
            State::Expected(_) => ContainerState::Expected,
            State::RestartAt(_) => ContainerState::BackingOff,
            State::Restarting(_) => ContainerState::Restarting,
        }
    }

    /// Returns true if a process unknown to this master may be running the instance.
    pub(super) fn may_be_running(&self, instance: &InstanceId) -> bool {
        self.unheard_until.is_some() && self.instances.binary_search(instance).is_ok()
    }
}

impl JobMaster {
    /// Updates `containers` to the required set, and requests these containers from the scheduler.
    /// `taken_over` is true if workers of an earlier master may be running.
    pub(super) fn have_containers(&mut self, now: Duration, taken_over: bool) {
        let Some(plan) = self.plan().map(Arc::clone) else {
            return;
        };
        let ids = match (&self.scaling, &self.attempts) {
            (Some(scaling), _) => scaling.containers(),
            // The containers of the next plan are started before the attempt with the previous plan
            // ends.
            (None, Some(_)) => {
                let plans = self.known_plans();
                let containers = plans.iter().flat_map(|(_, plan)| plan.containers());
                containers.map(|c| c.id).collect()
            }
            (None, None) => plan.containers().iter().map(|c| c.id).collect(),
        };
        let patience = match taken_over {
            true => self.config.recovery_grace,
            false => self.config.register_within,
        };
        for id in &ids {
            let instances = self.planned(&plan, *id);
            let backoff = self.config.restart;
            let container = self.containers.entry(*id).or_insert_with(|| Container {
                instances: Arc::from([]),
                state: State::Expected(now + patience),
                backoff: Backoff::new(backoff),
                newest_start: 0,
                unheard_until: taken_over.then_some(now + patience),
                awaited_since: Some(now),
            });
            container.instances = instances;
        }
        self.containers.retain(|id, _| ids.contains(id));
        // Pending calls about removed containers are dropped too.
        self.scheduler_calls
            .retain_containers(|id| ids.contains(&id));
        self.peers.retain(|id| ids.contains(&id));
        let gone: Vec<_> = self
            .workers
            .keys()
            .copied()
            .filter(|id| !ids.contains(id))
            .collect();
        for id in gone {
            if let Some(worker) = self.members.worker(id) {
                // The consequences of the worker's exit are handled here.
                let _ = self.members.on(now, MemberEvent::Exited(worker));
            }
            self.workers.remove(&id);
            self.ended.remove(&id);
        }
        let order = self.next_order();
        let call = SchedulerCall::EnsureContainers(self.requests(&plan));
        self.scheduler_calls.ask(Subject::Job, order, call);
    }

    /// Updates the instances of all containers after a change of plan.
    pub(super) fn arrange_containers(&mut self) {
        let Some(plan) = self.plan().map(Arc::clone) else {
            return;
        };
        let ids: Vec<_> = self.containers.keys().copied().collect();
        for id in ids {
            let instances = self.planned(&plan, id);
            if let Some(container) = self.containers.get_mut(&id) {
                container.instances = instances;
            }
        }
    }

    /// Returns the instances of a container by `plan`, and also by the previous plan if there is
    /// one. In a job with attempts, returns those by the plan of the current attempt.
    fn planned(&self, plan: &PackingPlan, container: ContainerId) -> Arc<[InstanceId]> {
        if self.attempts.is_some() {
            let plan = self.attempt_plan();
            let found =
                plan.and_then(|(_, plan)| Some(plan.container(container)?.instances.clone()));
            return found.unwrap_or_default().into();
        }
        let previous = self
            .record_store
            .record()
            .and_then(|record| record.previous.as_ref());
        let of = |plan: &PackingPlan| plan.container(container).map(|c| c.instances.clone());
        let mut instances = of(plan).unwrap_or_default();
        if let Some(last) = previous.and_then(|previous| of(&previous.plan)) {
            instances.extend(last);
            instances.sort_unstable();
            instances.dedup();
        }
        instances.into()
    }

    fn requests(&self, plan: &PackingPlan) -> Vec<ContainerRequest> {
        let previous = self
            .record_store
            .record()
            .and_then(|record| record.previous.as_ref());
        let find = |id| {
            let next = plan.container(id);
            next.or_else(|| previous.and_then(|previous| previous.plan.container(id)))
        };
        let found = self.containers.keys().filter_map(|id| find(*id));
        found
            .map(|container| ContainerRequest {
                id: container.id,
                required: container.required,
                attributes: container.attributes.clone(),
            })
            .collect()
    }

    /// Returns the plans to which assignments of workers may refer.
    pub(super) fn known_plans(&self) -> Vec<(PlanVersion, Arc<PackingPlan>)> {
        let Some(record) = self.record_store.record() else {
            return Vec::new();
        };
        let previous = record.previous.as_ref();
        let previous = previous.map(|previous| (previous.version, Arc::clone(&previous.plan)));
        let plan = record.plan.as_ref();
        let plan = plan.map(|plan| (record.plan_version, Arc::clone(plan)));
        previous.into_iter().chain(plan).collect()
    }

    /// Returns true if the job requires a worker of this container.
    pub(super) fn needs(&self, container: ContainerId) -> bool {
        match &self.scaling {
            Some(scaling) => scaling.needs(container),
            None => self.containers.contains_key(&container) && !self.is_released(container),
        }
    }

    /// Returns true if the job is impaired while this container has no worker.
    fn lacks(&self, container: ContainerId) -> bool {
        match &self.scaling {
            Some(scaling) => scaling.lacks(container),
            None => self.needs(container),
        }
    }

    /// Returns true if the job has no container of this number. While plans change, containers of
    /// the previous plan count until all workers route by the new one.
    pub fn is_container_obsolete(&self, id: ContainerId) -> bool {
        let Some(record) = self.record_store.record() else {
            return false;
        };
        if let Some(scaling) = &self.scaling {
            return !scaling.has(id);
        }
        // No change of plans is in progress, the master has not started it yet, or the job is
        // ending.
        let previous = record.previous.iter().map(|previous| &previous.plan);
        let mut plans = record.plan.iter().chain(previous);
        !plans.any(|plan| plan.container(id).is_some())
    }

    /// Returns true if a required worker is missing.
    pub(super) fn is_worker_missing(&self) -> bool {
        // A container without a worker is always unsettled.
        let mut unsettled = self.unsettled.iter();
        unsettled.any(|id| self.lacks(*id) && !self.workers.contains_key(id))
    }

    pub(super) fn joined(&mut self, worker: WorkerId, actions: &mut Vec<MasterAction>) {
        actions.push(MasterAction::Note(MasterStatus::Joined(worker)));
        if let Some(container) = self.containers.get_mut(&worker.container) {
            container.awaited_since = None;
            container.newest_start = container.newest_start.max(worker.incarnation);
            // A restart requested by a user continues even if the old worker returns.
            if !self.restarting.contains_key(&worker.container) {
                container.state = State::Up;
                self.scheduler_calls
                    .forget(Subject::Container(worker.container));
            }
        }
    }

    /// Among the containers that are not in the plan `before`, returns the one whose first worker
    /// is overdue longest, and the time since which it is awaited.
    pub(super) fn longest_awaited(&self, before: &PackingPlan) -> Option<(ContainerId, Duration)> {
        let new = self.containers.iter();
        let new = new.filter(|(id, _)| before.container(**id).is_none());
        let awaited = new.filter_map(|(id, container)| Some((*id, container.awaited_since?)));
        awaited.min_by_key(|(_, since)| *since)
    }

    pub(super) fn lost(
        &mut self,
        now: Duration,
        worker: WorkerId,
        cause: Cause,
        actions: &mut Vec<MasterAction>,
    ) {
        let known = self.workers.get(&worker.container);
        let known = known.filter(|known| known.id() == worker);
        let scope = known.map(Worker::scope).unwrap_or_default();
        self.forget_worker(worker);
        // The next attempt may start immediately, without the lost worker.
        self.worker_lost_to_attempt(now, (worker, scope), cause, actions);
        if cause != Cause::Replaced {
            self.expect_again(now, worker.container, actions);
        }
        self.settle(now, worker.container, actions);
        self.settle_waiting(now, actions);
    }

    pub(super) fn exited(
        &mut self,
        now: Duration,
        worker: WorkerId,
        actions: &mut Vec<MasterAction>,
    ) {
        if self.workers.contains_key(&worker.container) {
            return self.member_event(now, MemberEvent::Exited(worker), actions);
        }
        let Some(container) = self.containers.get_mut(&worker.container) else {
            return;
        };
        // The process exited before it registered. Exits of processes known to be replaced are
        // ignored.
        if worker.incarnation >= container.newest_start {
            container.newest_start = worker.incarnation + 1;
            // A new master does not know whether a later process has been started and has not
            // registered yet.
            if container.unheard_until.is_none() && matches!(container.state, State::Expected(_)) {
                self.expect_again(now, worker.container, actions);
            }
        }
    }

    /// Handles a container without a process: schedules its restart, or waits for the scheduler's
    /// framework to restart it.
    pub(super) fn expect_again(
        &mut self,
        now: Duration,
        id: ContainerId,
        actions: &mut Vec<MasterAction>,
    ) {
        let restarts = self.config.scheduler.stateful && self.needs(id) && !self.killing();
        let Some(container) = self.containers.get_mut(&id) else {
            return;
        };
        if matches!(container.state, State::Restarting(_) | State::RestartAt(_)) {
            return;
        }
        if !restarts {
            container.state = State::Expected(now + self.config.register_within);
            return;
        }
        let at = container.backoff.failed(now);
        actions.push(MasterAction::Note(MasterStatus::RestartAt(id, at)));
        container.state = State::RestartAt(at);
        if at <= now {
            self.start_again(id);
        }
    }

    /// Requests the restart of a container whose restart delay is over.
    fn start_again(&mut self, id: ContainerId) {
        if let Some(container) = self.containers.get_mut(&id) {
            container.state = State::Restarting(None);
            let order = self.next_order();
            let call = SchedulerCall::Restart(id);
            self.scheduler_calls
                .ask(Subject::Container(id), order, call);
        }
    }

    /// Restarts the containers whose restart is due. Schedules restarts of containers whose worker
    /// has not registered in time.
    pub(super) fn mend_containers(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let mut late = Vec::new();
        let mut due = Vec::new();
        let mut heard_of_all = false;
        for (id, container) in &mut self.containers {
            let over = container.unheard_until.take_if(|until| now >= *until);
            heard_of_all |= over.is_some();
            match container.state {
                State::Expected(until) if now >= until => late.push(*id),
                State::RestartAt(at) if now >= at => due.push(*id),
                _ => {}
            }
        }
        for id in &late {
            actions.push(MasterAction::Note(MasterStatus::Missing(*id)));
            self.expect_again(now, *id, actions);
        }
        if heard_of_all {
            self.settle_waiting(now, actions);
        }
        for id in due {
            self.start_again(id);
        }
    }

    pub(super) fn restart(&mut self, id: ContainerId) -> Result<(), Rejection> {
        let worker = self.workers.get(&id).and(self.members.worker(id));
        let job = self.job.to_string();
        let Some(container) = self.containers.get_mut(&id) else {
            return Err(Rejection::UnknownContainer(id));
        };
        if container.state != State::Up {
            let doing = format!("starting container {id} already");
            return Err(Rejection::Busy { job, doing });
        }
        container.state = State::Restarting(worker);
        let order = self.next_order();
        let call = SchedulerCall::Restart(id);
        self.scheduler_calls
            .ask(Subject::Container(id), order, call);
        Ok(())
    }

    pub(super) fn scheduler_answered(
        &mut self,
        now: Duration,
        order: crate::control::Order,
        answer: SchedulerAnswer,
        actions: &mut Vec<MasterAction>,
    ) {
        let started = match answer {
            SchedulerAnswer::Failed(why) => {
                self.scheduler_calls.failed(now, order, &why);
                actions.push(MasterAction::Note(MasterStatus::SchedulerFailed(why)));
                return;
            }
            SchedulerAnswer::Restarted(incarnation) => incarnation,
            SchedulerAnswer::Done => 0,
        };
        match self.scheduler_calls.done(order) {
            Some((Subject::Container(id), _)) => self.restarted(now, id, started, actions),
            Some((Subject::Job, SchedulerCall::Kill)) => self.ending = ShutdownPhase::Deleting,
            Some((Subject::Job, _)) | None => {}
        }
    }

    fn restarted(
        &mut self,
        now: Duration,
        id: ContainerId,
        incarnation: u64,
        actions: &mut Vec<MasterAction>,
    ) {
        if let Some(command) = self.restarting.remove(&id) {
            actions.push(MasterAction::Reply(command, Ok(())));
        }
        let Some(container) = self.containers.get_mut(&id) else {
            return;
        };
        container.newest_start = container.newest_start.max(incarnation);
        let State::Restarting(was) = container.state else {
            return;
        };
        let current = self.members.worker(id);
        let state = match current {
            // The new worker registered before the scheduler's answer arrived.
            Some(_) if was != current => State::Up,
            _ => State::Expected(now + self.config.register_within),
        };
        if let Some(ended) = was.filter(|_| was == current) {
            // The exit of the old worker may be reported later, or never.
            self.member_event(now, MemberEvent::Exited(ended), actions);
        }
        if let Some(container) = self.containers.get_mut(&id) {
            container.state = state;
        }
    }
}
