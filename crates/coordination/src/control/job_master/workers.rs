//! The assignments of workers: their computation, transmission and confirmation.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{ContainerId, InstanceId};

use super::{JobMaster, MasterAction};
use crate::control::{
    Assignment, DesiredState, ExecutionAttempt, Generation, MemberEvent, Order, Peer, PlanVersion,
    RecoveryScope, Registration, Rejection, RestoredWorker, Run, Status, ToWorker, WorkerId,
};

/// The state of a registered worker, as known to the master.
#[derive(Debug)]
pub(super) struct Worker {
    id: WorkerId,
    /// The execution attempt that the worker was in when it registered.
    attempt: Option<Generation>,
    endpoint: Arc<str>,
    /// The instances that the worker certainly runs, or ran when it registered.
    held: Arc<[InstanceId]>,
    /// The assignments sent since then, whose instances the worker may be running too.
    sent: VecDeque<SentAssignment>,
    applied: Option<Order>,
    scope: RecoveryScope,
    plans: Vec<PlanVersion>,
    peers: Order,
    sent_at: Duration,
}

#[derive(Debug)]
struct SentAssignment {
    order: Order,
    content: Content,
}

/// The content of an assignment, without its order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Content {
    pub(super) instances: Arc<[InstanceId]>,
    pub(super) run: Run,
    pub(super) routes: PlanVersion,
    /// The newest plan; equal to `routes` unless plans are being changed.
    pub(super) next: PlanVersion,
    /// The plan by which records in transit may have been routed.
    pub(super) last: PlanVersion,
    pub(super) attempt: Option<ExecutionAttempt>,
    /// The workers that were restored alone in the attempt.
    pub(super) restarted: Arc<[RestoredWorker]>,
    pub(super) peers: Order,
}

impl Worker {
    pub(super) fn id(&self) -> WorkerId {
        self.id
    }

    /// Returns the part of the job that is restored if the worker is lost, as it last reported.
    pub(super) fn scope(&self) -> RecoveryScope {
        self.scope
    }

    /// Returns true if the worker was in the attempt `life` when it registered.
    pub(super) fn was_in_attempt(&self, life: Option<Generation>) -> bool {
        self.attempt.is_some() && self.attempt == life
    }

    /// Returns true if the worker may be running this instance.
    fn holds(&self, instance: &InstanceId) -> bool {
        let in_list = |list: &Arc<[InstanceId]>| list.binary_search(instance).is_ok();
        in_list(&self.held)
            || self
                .sent
                .iter()
                .any(|told| in_list(&told.content.instances))
    }

    /// Marks the assignments up to this order as carried out.
    fn carried_out(&mut self, order: Order) {
        while let Some(told) = self.sent.pop_front_if(|told| told.order <= order) {
            if told.order == order {
                self.held = Arc::clone(&told.content.instances);
                let Content {
                    routes, next, last, ..
                } = told.content;
                self.plans = vec![routes, next, last];
                self.peers = told.content.peers;
                // The current assignment stays in the queue, for comparison with the next one.
                self.sent.push_front(told);
                break;
            }
        }
        self.applied = Some(order);
    }

    fn runs(&self, content: &Content) -> bool {
        let newest = self.sent.back();
        newest.is_some_and(|told| told.content == *content && self.applied == Some(told.order))
    }
}

impl JobMaster {
    pub(super) fn registered(
        &mut self,
        now: Duration,
        registration: Registration,
        actions: &mut Vec<MasterAction>,
    ) {
        let Registration {
            worker,
            who,
            endpoint,
            held,
        } = registration;
        let ours = who.job == self.job && who.protocol == crate::control::PROTOCOL;
        if ours && !self.containers.contains_key(&worker.container) {
            let refused = Rejection::UnknownContainer(worker.container);
            return self.turn_away(worker, refused, actions);
        }
        let known = self.workers.get(&worker.container);
        let again = known.is_some_and(|known| known.id == worker);
        self.member_event(now, MemberEvent::Register(worker, who), actions);
        if again || self.members.worker(worker.container) != Some(worker) {
            return;
        }
        let (mut instances, plans, life) = match held {
            Some(held) => (held.instances, held.plans, held.attempt),
            None => (Arc::from([]), Vec::new(), None),
        };
        if !instances.is_sorted() {
            let mut sorted = instances.to_vec();
            sorted.sort_unstable();
            instances = sorted.into();
        }
        let joined = Worker {
            id: worker,
            attempt: life,
            endpoint: Arc::clone(&endpoint),
            held: instances,
            sent: VecDeque::new(),
            applied: None,
            scope: RecoveryScope::default(),
            plans,
            peers: Order::default(),
            sent_at: Duration::ZERO,
        };
        self.workers.insert(worker.container, joined);
        self.ended.remove(&worker.container);
        self.worker_joined_attempt(worker, life);
        self.joined(worker, actions);
        let stamp = self.next_order();
        self.peers.set(now, Peer { worker, endpoint }, stamp);
        if self.publish_peers(now, actions) {
            return;
        }
        match self.is_recovering_alone(worker.container) {
            // The other workers repeat their output to this one.
            true => self.settle_all(now, actions),
            false => self.settle(now, worker.container, actions),
        }
    }

    pub(super) fn status(
        &mut self,
        now: Duration,
        status: Status,
        actions: &mut Vec<MasterAction>,
    ) {
        let Status {
            worker,
            applied,
            ended,
            scope,
        } = status;
        self.member_event(now, MemberEvent::MessageReceived(worker), actions);
        let Some(known) = self.workers.get_mut(&worker.container) else {
            return;
        };
        if known.id != worker {
            return;
        }
        known.scope = scope;
        actions.push(MasterAction::To(
            worker,
            ToWorker::StatusReceived(self.epoch),
        ));
        let fresh = applied.filter(|order| order.epoch == self.epoch && known.applied < applied);
        if let Some(order) = fresh {
            known.carried_out(order);
        }
        // A status about a superseded order does not apply to the current one.
        let newest = known.sent.back().map(|told| told.order);
        if newest.is_some() && applied == newest && known.applied == newest {
            match ended {
                true => self.ended.insert(worker.container),
                false => self.ended.remove(&worker.container),
            };
        }
        if fresh.is_some() {
            self.settle(now, worker.container, actions);
            self.settle_waiting(now, actions);
        }
    }

    pub(super) fn forget_worker(&mut self, worker: WorkerId) {
        let container = worker.container;
        if self
            .workers
            .get(&container)
            .is_some_and(|known| known.id == worker)
        {
            self.workers.remove(&container);
            self.ended.remove(&container);
        }
    }

    /// Sends a container's worker its current assignment, unless already sent. Records whether the
    /// worker has carried it out.
    pub(super) fn settle(
        &mut self,
        now: Duration,
        container: ContainerId,
        actions: &mut Vec<MasterAction>,
    ) {
        if self.killing() {
            if let Some(worker) = self.workers.get(&container) {
                let leave = ToWorker::Leave(self.epoch);
                actions.push(MasterAction::To(worker.id, leave));
            }
            return;
        }
        if !self.workers.contains_key(&container) {
            match self.needs(container) {
                true => self.unsettled.insert(container),
                false => self.unsettled.remove(&container),
            };
            return;
        }
        if self.is_spared(container) {
            self.unsettled.remove(&container);
            return;
        }
        let Some(content) = self.content(container) else {
            // In a job with attempts, the worker waits for the next attempt.
            if self.attempts.is_some() {
                self.unsettled.insert(container);
            }
            return;
        };
        let order = self.next_order();
        let Some(worker) = self.workers.get_mut(&container) else {
            return;
        };
        if worker.runs(&content) {
            self.unsettled.remove(&container);
            return;
        }
        self.unsettled.insert(container);
        if worker
            .sent
            .back()
            .is_none_or(|told| told.content != content)
        {
            worker.sent.push_back(SentAssignment { order, content });
            let id = worker.id;
            self.note_told(id);
            self.ended.remove(&container);
            self.send_assignment(now, container, actions);
        }
    }

    pub(super) fn settle_all(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let containers: Vec<_> = self.containers.keys().copied().collect();
        self.unsettled
            .retain(|container| self.containers.contains_key(container));
        for container in containers {
            self.settle(now, container, actions);
        }
    }

    /// Updates the assignments of containers that instances move to. An instance may start once it
    /// has stopped in its old container, or the worker of that container has died.
    pub(super) fn settle_waiting(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let Some(scaling) = &self.scaling else {
            return;
        };
        for container in scaling.destinations() {
            self.settle(now, container, actions);
        }
    }

    /// Repeats assignments that have not been carried out for a while.
    pub(super) fn repeat_assignments(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let after = self.config.repeat_after;
        let late: Vec<_> = self
            .unsettled
            .iter()
            .copied()
            .filter(|container| {
                let worker = self.workers.get(container);
                worker.is_some_and(|worker| now >= worker.sent_at + after)
            })
            .collect();
        for container in late {
            self.send_assignment(now, container, actions);
        }
    }

    fn send_assignment(
        &mut self,
        now: Duration,
        container: ContainerId,
        actions: &mut Vec<MasterAction>,
    ) {
        let known_plans = self.known_plans();
        let Some(worker) = self.workers.get_mut(&container) else {
            return;
        };
        let Some(SentAssignment { order, content }) = worker.sent.back() else {
            return;
        };
        worker.sent_at = now;
        let (epoch, id) = (self.epoch, worker.id);
        let wanted = [content.routes, content.next, content.last];
        for (version, plan) in known_plans {
            if wanted.contains(&version) && !worker.plans.contains(&version) {
                let message = ToWorker::Plan {
                    epoch,
                    version,
                    plan,
                };
                actions.push(MasterAction::To(id, message));
            }
        }
        if worker.peers < content.peers {
            let message = ToWorker::Peers {
                epoch,
                from: worker.peers,
                to: content.peers,
                changed: self.peers.changed(worker.peers),
            };
            actions.push(MasterAction::To(id, message));
        }
        let assignment = Assignment {
            order: *order,
            instances: Arc::clone(&content.instances),
            run: content.run,
            routes: content.routes,
            next: content.next,
            last: content.last,
            attempt: content.attempt,
            restarted: Arc::clone(&content.restarted),
            peers: content.peers,
        };
        let message = ToWorker::Assign(Arc::new(assignment));
        actions.push(MasterAction::To(id, message));
    }

    /// Returns the assignment for a container's worker, or `None` if there is no plan yet.
    fn content(&self, container: ContainerId) -> Option<Content> {
        if self.config.epochs.is_some() {
            return self.attempt_content(container);
        }
        let record = self.record_store.record()?;
        let plan = record.plan.as_ref()?;
        let instances = match &self.scaling {
            Some(scaling) => {
                let instances = scaling.instances(container, self.may_run(), self.holding());
                instances.into()
            }
            None => {
                let known = self.containers.get(&container)?;
                Arc::clone(&known.instances)
            }
        };
        let (routes, last) = match &self.scaling {
            Some(scaling) => (scaling.routes().0, scaling.last()),
            None => (record.plan_version, record.plan_version),
        };
        debug_assert!(self.scaling.is_some() || plan.container(container).is_some());
        Some(Content {
            instances,
            run: match record.intent {
                _ if !record.started => Run::Prepared,
                DesiredState::Pause => Run::Paused,
                DesiredState::Run | DesiredState::Kill => Run::Running,
            },
            routes,
            next: record.plan_version,
            last,
            attempt: None,
            restarted: Arc::from([]),
            peers: self.peers.published(),
        })
    }

    /// Returns a predicate that is true if any process of a container may be running an instance.
    pub(super) fn may_run(&self) -> impl Fn(ContainerId, &InstanceId) -> bool + '_ {
        |container, instance| {
            // For a new master, an unknown worker may still register: the current one, or one of a
            // later start.
            let known = self.containers.get(&container);
            known.is_some_and(|known| known.may_be_running(instance))
                || self.holding()(container, instance)
        }
    }

    /// Returns a predicate that is true if a container's worker runs an instance, or the instance
    /// is assigned to it.
    pub(super) fn holding(&self) -> impl Fn(ContainerId, &InstanceId) -> bool + '_ {
        |container, instance| {
            let worker = self.workers.get(&container);
            worker.is_some_and(|worker| worker.holds(instance))
        }
    }

    /// Publishes changed worker addresses to all workers, once all workers are registered or the
    /// changes have been batched for long enough. Returns true if it has published changes.
    pub(super) fn publish_peers(&mut self, now: Duration, actions: &mut Vec<MasterAction>) -> bool {
        let Some(since) = self.peers.unpublished_since() else {
            return false;
        };
        let complete = self.workers.len() == self.containers.len();
        // Before the job has started, workers cannot use a part of the table.
        let started = self
            .record_store
            .record()
            .is_some_and(|record| record.started);
        if !complete && (!started || now < since + self.config.gather_peers) {
            return false;
        }
        self.peers.publish();
        self.settle_all(now, actions);
        true
    }

    /// Returns the address at which other workers reach the worker of a container, if it is
    /// registered.
    pub fn endpoint(&self, container: ContainerId) -> Option<&str> {
        let worker = self.workers.get(&container)?;
        Some(&worker.endpoint)
    }
}
