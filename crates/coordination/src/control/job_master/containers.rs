//! Containers: which there should be, which are waited for, and when one is started again.

use std::sync::Arc;
use std::time::Duration;

use crate::packing::{ContainerId, InstanceId, PackingPlan};

use super::scheduler_desk::Subject;
use super::{
    ContainerRequest, ContainerState, Ending, JobMaster, MasterAction, Note, SchedulerAnswer,
    SchedulerCall,
};
use crate::control::{Backoff, Cause, MemberEvent, PlanVersion, Refused, WorkerId};

/// A container that there should be.
#[derive(Debug)]
pub(super) struct Container {
    /// What it runs by the plan; while plans change, the stage says more.
    pub(super) instances: Arc<[InstanceId]>,
    state: State,
    backoff: Backoff,
    /// Ends of processes that were started before this one are no news.
    newest_start: u64,
    /// For a master that has taken over: until when a worker may come that it doesn't know of, and that is running. Even if one
    /// has come: it may be one that was replaced before.
    unheard_until: Option<Duration>,
    /// Since when its first worker has been waited for.
    awaited_since: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its worker is a member.
    Up,
    /// Its worker should come, until then.
    Expected(Duration),
    /// It is to be started again, then.
    RestartAt(Duration),
    /// The scheduler has been told to start it again; who was its worker then.
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

    /// Whether a process that this master doesn't know of may be running the instance.
    pub(super) fn may_be_running(&self, instance: &InstanceId) -> bool {
        self.unheard_until.is_some() && self.instances.binary_search(instance).is_ok()
    }
}

impl JobMaster {
    /// Makes the containers those that there should be, and has the scheduler told.
    pub(super) fn have_containers(&mut self, now: Duration, taken_over: bool) {
        let Some(plan) = self.plan().map(Arc::clone) else {
            return;
        };
        let ids = match (&self.scaling, &self.lives) {
            (Some(scaling), _) => scaling.containers(),
            // Those of the next plan are started before the life ends that is arranged by the last one.
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
        // Nor is anything asked any more of one that is not wanted.
        self.desk.retain_containers(|id| ids.contains(&id));
        self.peers.retain(|id| ids.contains(&id));
        let gone: Vec<_> = self
            .workers
            .keys()
            .copied()
            .filter(|id| !ids.contains(id))
            .collect();
        for id in gone {
            if let Some(worker) = self.members.worker(id) {
                // What follows from its end is done here.
                let _ = self.members.on(now, MemberEvent::Exited(worker));
            }
            self.workers.remove(&id);
            self.ended.remove(&id);
        }
        let order = self.next_order();
        let call = SchedulerCall::Have(self.requests(&plan));
        self.desk.ask(Subject::Job, order, call);
    }

    /// What containers run is another plan's matter from now on.
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

    /// The instances of a container by the plan, and by the one before it while that is left. In a job with lives by the present life's plan.
    fn planned(&self, plan: &PackingPlan, container: ContainerId) -> Arc<[InstanceId]> {
        if self.lives.is_some() {
            let plan = self.plan_of_life();
            let found =
                plan.and_then(|(_, plan)| Some(plan.container(container)?.instances.clone()));
            return found.unwrap_or_default().into();
        }
        let previous = self
            .keeper
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
            .keeper
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

    /// The plans that workers may need to know.
    pub(super) fn known_plans(&self) -> Vec<(PlanVersion, Arc<PackingPlan>)> {
        let Some(record) = self.keeper.record() else {
            return Vec::new();
        };
        let previous = record.previous.as_ref();
        let previous = previous.map(|previous| (previous.version, Arc::clone(&previous.plan)));
        let plan = record.plan.as_ref();
        let plan = plan.map(|plan| (record.plan_version, Arc::clone(plan)));
        previous.into_iter().chain(plan).collect()
    }

    /// Whether the job can't do without this container's worker.
    pub(super) fn needs(&self, container: ContainerId) -> bool {
        match &self.scaling {
            Some(scaling) => scaling.needs(container),
            None => self.containers.contains_key(&container) && !self.is_released(container),
        }
    }

    /// Whether the job lacks something while this container has no worker.
    fn lacks(&self, container: ContainerId) -> bool {
        match &self.scaling {
            Some(scaling) => scaling.lacks(container),
            None => self.needs(container),
        }
    }

    /// Whether the job does without this container: its plan has none of that number, nor has, while plans change, the one before it, from
    /// which containers are given back when everybody routes by the new one.
    pub fn does_without(&self, id: ContainerId) -> bool {
        let Some(record) = self.keeper.record() else {
            return false;
        };
        if let Some(scaling) = &self.scaling {
            return !scaling.has(id);
        }
        // Plans don't change, or the master has yet to take that up, or the job ends.
        let previous = record.previous.iter().map(|previous| &previous.plan);
        let mut plans = record.plan.iter().chain(previous);
        !plans.any(|plan| plan.container(id).is_some())
    }

    /// Whether a worker is missing that the job can't do without.
    pub(super) fn is_worker_missing(&self) -> bool {
        // No container without a worker is settled.
        let mut unsettled = self.unsettled.iter();
        unsettled.any(|id| self.lacks(*id) && !self.workers.contains_key(id))
    }

    /// A container's worker has come.
    pub(super) fn joined(&mut self, worker: WorkerId, actions: &mut Vec<MasterAction>) {
        actions.push(MasterAction::Note(Note::Joined(worker)));
        if let Some(container) = self.containers.get_mut(&worker.container) {
            container.awaited_since = None;
            container.newest_start = container.newest_start.max(worker.incarnation);
            // A restart that was asked for by a person goes on even if the old worker comes once more.
            if !self.restarting.contains_key(&worker.container) {
                container.state = State::Up;
                self.desk.forget(Subject::Container(worker.container));
            }
        }
    }

    /// The container that the job had not before that plan, and whose first worker has been waited for longest; since when.
    pub(super) fn longest_awaited(&self, before: &PackingPlan) -> Option<(ContainerId, Duration)> {
        let new = self.containers.iter();
        let new = new.filter(|(id, _)| before.container(**id).is_none());
        let awaited = new.filter_map(|(id, container)| Some((*id, container.awaited_since?)));
        awaited.min_by_key(|(_, since)| *since)
    }

    /// A container's worker is lost.
    pub(super) fn lost(
        &mut self,
        now: Duration,
        worker: WorkerId,
        cause: Cause,
        actions: &mut Vec<MasterAction>,
    ) {
        self.forget_worker(worker);
        // Another life may begin at once, without it.
        self.lost_to_life(now, worker, cause, actions);
        if cause != Cause::Replaced {
            self.expect_again(now, worker.container, actions);
        }
        self.settle(now, worker.container, actions);
        self.settle_waiting(now, actions);
    }

    /// A process of a container has ended.
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
        // It has ended before it could register, unless it is one that is known to have been replaced.
        if worker.incarnation >= container.newest_start {
            container.newest_start = worker.incarnation + 1;
            // A new master doesn't know whether a later one has been started since, which lives and has not come yet.
            if container.unheard_until.is_none() && matches!(container.state, State::Expected(_)) {
                self.expect_again(now, worker.container, actions);
            }
        }
    }

    /// A container has lost its process: has it started again after a while, or waits until its framework does so.
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
        actions.push(MasterAction::Note(Note::RestartAt(id, at)));
        container.state = State::RestartAt(at);
        if at <= now {
            self.start_again(id);
        }
    }

    /// Has the scheduler start a container again whose time has come.
    fn start_again(&mut self, id: ContainerId) {
        if let Some(container) = self.containers.get_mut(&id) {
            container.state = State::Restarting(None);
            let order = self.next_order();
            let call = SchedulerCall::Restart(id);
            self.desk.ask(Subject::Container(id), order, call);
        }
    }

    /// Has containers started again whose time has come.
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
            actions.push(MasterAction::Note(Note::Missing(*id)));
            self.expect_again(now, *id, actions);
        }
        if heard_of_all {
            self.settle_waiting(now, actions);
        }
        for id in due {
            self.start_again(id);
        }
    }

    /// A person wants a container to be started again.
    pub(super) fn restart(&mut self, id: ContainerId) -> Result<(), Refused> {
        let worker = self.workers.get(&id).and(self.members.worker(id));
        let job = self.job.to_string();
        let Some(container) = self.containers.get_mut(&id) else {
            return Err(Refused::UnknownContainer(id));
        };
        if container.state != State::Up {
            let doing = format!("starting container {id} already");
            return Err(Refused::Busy { job, doing });
        }
        container.state = State::Restarting(worker);
        let order = self.next_order();
        let call = SchedulerCall::Restart(id);
        self.desk.ask(Subject::Container(id), order, call);
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
                self.desk.failed(now, order, &why);
                actions.push(MasterAction::Note(Note::SchedulerFailed(why)));
                return;
            }
            SchedulerAnswer::Restarted(incarnation) => incarnation,
            SchedulerAnswer::Done => 0,
        };
        match self.desk.done(order) {
            Some((Subject::Container(id), _)) => self.restarted(now, id, started, actions),
            Some((Subject::Job, SchedulerCall::Kill)) => self.ending = Ending::Deleting,
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
            // The new one was faster than the scheduler's answer.
            Some(_) if was != current => State::Up,
            _ => State::Expected(now + self.config.register_within),
        };
        if let Some(ended) = was.filter(|_| was == current) {
            // Its end may be told later, or never.
            self.member_event(now, MemberEvent::Exited(ended), actions);
        }
        if let Some(container) = self.containers.get_mut(&id) {
            container.state = state;
        }
    }
}
