//! The worker's side of the control plane. It finds the leader, registers, carries out the newest
//! assignment, and continues to run it without a leader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{ContainerId, InstanceId, PackingPlan};

use crate::control::{
    Assignment, AttemptEnd, CheckpointParticipant, Credentials, ExecutionAttempt, Generation,
    MasterEpoch, Order, ParticipantAction, ParticipantEvent, ParticipantId, Peer, PlanVersion,
    RecoveryScope, Registration, Run, RunningAssignment, Status, ToMaster, ToWorker, WorkerId,
};

mod change;

pub use change::{Change, LeaveReason};

/// Intervals and timeouts of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    /// The heartbeat interval.
    pub heartbeat_every: Duration,
    /// The time without a message from the master after which the worker looks up the master again.
    pub silent_after: Duration,
    /// The interval of the retries to look up a master and to register.
    pub ask_every: Duration,
}

impl Default for AgentConfig {
    fn default() -> Self {
        AgentConfig {
            heartbeat_every: Duration::from_millis(500),
            silent_after: Duration::from_secs(3),
            ask_every: Duration::from_millis(250),
        }
    }
}

/// An event for a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AgentEvent {
    /// Time has passed. Must come at least every 50 ms.
    Tick,
    /// The reply of the metadata store about the job's leader.
    Lookup(Lookup),
    /// A message from a master.
    From(ToWorker),
    /// The connection to the master was closed.
    Closed,
    /// The part of the job that is restored if this worker is lost, in the given attempt. Reported
    /// before the first change of the attempt has been carried out.
    Scope(Generation, RecoveryScope),
    /// The change with this order has been carried out: exactly the instances of this assignment
    /// run.
    Applied(Order),
    /// All instances of the assignment with this order, which has been carried out, have completed
    /// successfully.
    Ended(Order),
    /// An instance has failed, and is being restarted.
    Failed(InstanceId, String),
    /// A checkpoint event of the given execution attempt in this process. Never
    /// [`ParticipantEvent::From`]: the agent itself passes messages of the master on.
    Epochs(Generation, ParticipantEvent),
    /// The given execution attempt cannot start or continue in this process. Must be reported
    /// before any later event of the attempt. From then on no snapshots of the attempt are
    /// accepted.
    AttemptOver(Generation, AttemptEnd),
}

/// The reply of the metadata store about the job's leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The job has a leader.
    Master {
        /// The address of the leader.
        address: String,
        /// The master epoch of the leader.
        epoch: MasterEpoch,
    },
    /// The job has no leader at the moment.
    NoLeader,
    /// The job no longer exists.
    JobGone,
}

/// An action requested by a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AgentAction {
    /// Look up the job's leader in the metadata store.
    LookUp,
    /// Send a message to the master at this address; the message may be lost.
    Send(String, ToMaster),
    /// Connect to these workers, which are new or have another address.
    Peers(Arc<[Peer]>),
    /// Change the running instances, after all earlier changes are done. Then report
    /// [`AgentEvent::Applied`].
    Apply(Change),
    /// A checkpoint action of the attempt that runs in this process; never
    /// [`ParticipantAction::Send`].
    Epochs(Generation, ParticipantAction),
    /// Stop everything and exit the process.
    Exit(LeaveReason),
}

/// The state machine of a worker in the control plane.
///
/// The agent carries out assignments of the newest master that it knows of, and rejects messages of
/// older ones. Without a master it continues to run its assignment, and looks up a master
/// repeatedly.
#[derive(Debug)]
pub struct WorkerAgent {
    worker: WorkerId,
    who: Credentials,
    endpoint: Arc<str>,
    config: AgentConfig,
    epoch: MasterEpoch,
    link: Link,
    ask_at: Duration,
    target: Option<Target>,
    applied: Option<Order>,
    /// The order of the newest assignment whose instances have all completed.
    ended: Option<Order>,
    plans: BTreeMap<PlanVersion, Arc<PackingPlan>>,
    peers: BTreeMap<ContainerId, Peer>,
    /// The state up to which the peer table is complete.
    peers_state: Order,
    /// An assignment that arrived before the plans or peers that it refers to.
    early: Option<Arc<Assignment>>,
    /// The participant in the checkpoints of the current attempt.
    epochs: Option<CheckpointParticipant>,
    /// The part of the job that is restored if this worker is lost.
    scope: RecoveryScope,
    /// The attempt that cannot continue in this process, and the reason.
    life_over: Option<(Generation, AttemptEnd)>,
    over: bool,
}

/// The desired state of this worker, by its newest assignment.
#[derive(Debug)]
struct Target {
    order: Order,
    instances: Arc<[InstanceId]>,
    /// The instances that earlier changes stop, while these changes may not be carried out yet.
    stopping: BTreeSet<InstanceId>,
    run: Run,
    routes: PlanVersion,
    attempt: Option<ExecutionAttempt>,
    /// True if this worker is being restored alone, and others may not know of it yet.
    is_joining: bool,
}

#[derive(Debug)]
enum Link {
    /// The agent looks up a master.
    Seeking,
    /// The agent registers with the master at this address.
    Asking { address: String, since: Duration },
    /// The agent is registered with a master.
    Joined {
        address: String,
        heard: Duration,
        heartbeat_at: Duration,
    },
}

impl WorkerAgent {
    /// Creates the agent of a worker that was just started.
    pub fn new(
        worker: WorkerId,
        who: Credentials,
        endpoint: impl Into<Arc<str>>,
        config: AgentConfig,
    ) -> Self {
        WorkerAgent {
            worker,
            who,
            endpoint: endpoint.into(),
            config,
            epoch: MasterEpoch::default(),
            link: Link::Seeking,
            ask_at: Duration::ZERO,
            target: None,
            applied: None,
            ended: None,
            plans: BTreeMap::new(),
            peers: BTreeMap::new(),
            peers_state: Order::default(),
            early: None,
            epochs: None,
            scope: RecoveryScope::default(),
            life_over: None,
            over: false,
        }
    }

    /// Returns the identity of the worker.
    pub fn id(&self) -> WorkerId {
        self.worker
    }

    /// Returns the assigned instances; empty before the first assignment.
    pub fn instances(&self) -> &[InstanceId] {
        self.target.as_ref().map_or(&[], |target| &target.instances)
    }

    /// Returns the state of the sources.
    pub fn run(&self) -> Run {
        self.target
            .as_ref()
            .map_or(Run::Prepared, |target| target.run)
    }

    /// Returns the version of the plan by which records are routed; `None` before the first
    /// assignment.
    pub fn routes(&self) -> Option<PlanVersion> {
        self.target.as_ref().map(|target| target.routes)
    }

    /// Returns the assigned execution attempt, if any; `None` for a job without a guarantee.
    pub fn attempt(&self) -> Option<ExecutionAttempt> {
        self.target.as_ref()?.attempt
    }

    /// Returns the checkpoint participant of the assigned attempt, if any.
    pub fn epochs(&self) -> Option<&CheckpointParticipant> {
        self.epochs.as_ref()
    }

    /// Returns the address of a container's worker, if known.
    pub fn peer(&self, container: ContainerId) -> Option<&Peer> {
        self.peers.get(&container)
    }

    /// Returns the order of the newest assignment that was carried out, if any.
    pub fn applied(&self) -> Option<Order> {
        self.applied
    }

    /// Handles an event and returns the resulting actions. After [`AgentAction::Exit`] no event has
    /// an effect.
    pub fn on(&mut self, now: Duration, event: AgentEvent) -> Vec<AgentAction> {
        let mut actions = Vec::new();
        if self.over {
            return actions;
        }
        match event {
            AgentEvent::Tick => {}
            AgentEvent::Lookup(found) => self.looked_up(now, found, &mut actions),
            AgentEvent::From(message) => self.handle_message(now, message, &mut actions),
            AgentEvent::Closed => self.link = Link::Seeking,
            AgentEvent::Scope(generation, scope) => {
                if self.generation() == Some(generation) {
                    self.scope = scope;
                }
            }
            AgentEvent::Applied(order) => self.carried_out(now, order),
            AgentEvent::Ended(order) => {
                self.ended = self.ended.max(Some(order));
                self.report_now();
            }
            AgentEvent::Failed(instance, message) => {
                let worker = self.worker;
                let problem = ToMaster::Problem {
                    worker,
                    instance,
                    message,
                };
                self.send(problem, &mut actions);
            }
            AgentEvent::Epochs(generation, event) => {
                // A snapshot taken after a possible loss of data is not consistent with the rest of
                // the job.
                let is_over = self.life_over.is_some();
                let counts = !is_over || matches!(event, ParticipantEvent::Visible(_));
                if self.generation() == Some(generation) && counts {
                    self.in_epochs(event, &mut actions);
                }
            }
            AgentEvent::AttemptOver(generation, why) => {
                if self.generation() == Some(generation) && self.life_over.is_none() {
                    self.life_over = Some((generation, why));
                    self.report_attempt_over(&mut actions);
                }
            }
        }
        if !self.over {
            self.contact_master(now, &mut actions);
        }
        actions
    }

    fn looked_up(&mut self, now: Duration, found: Lookup, actions: &mut Vec<AgentAction>) {
        match found {
            Lookup::Master { address, epoch } => {
                // The metadata store may still contain the lease of a superseded master.
                if epoch >= self.epoch && matches!(self.link, Link::Seeking) {
                    self.link = Link::Asking {
                        address,
                        since: now,
                    };
                    self.ask_at = now;
                }
            }
            Lookup::NoLeader => {}
            Lookup::JobGone => self.leave(LeaveReason::JobOver, actions),
        }
    }

    fn handle_message(&mut self, now: Duration, message: ToWorker, actions: &mut Vec<AgentAction>) {
        if message.epoch() < self.epoch {
            let not_master = ToMaster::NotMaster {
                worker: self.worker,
                newest: self.epoch,
            };
            self.send(not_master, actions);
            return;
        }
        if message.epoch() > self.epoch {
            self.epoch = message.epoch();
            // An early assignment of the previous master must not be carried out, even if this is
            // possible now.
            self.early = None;
        }
        match &mut self.link {
            Link::Joined { heard, .. } => *heard = now,
            Link::Asking { since, .. } => *since = now,
            Link::Seeking => {}
        }
        match message {
            ToWorker::Welcome(_) => self.welcomed(now),
            ToWorker::Refused(_, refused) => self.leave(LeaveReason::Refused(refused), actions),
            ToWorker::Unknown(_) => {
                if let Link::Joined { address, .. } = &self.link {
                    let address = address.clone();
                    self.link = Link::Asking {
                        address,
                        since: now,
                    };
                    self.ask_at = now;
                }
            }
            ToWorker::StatusReceived(_) => {}
            ToWorker::Plan { version, plan, .. } => {
                self.plans.insert(version, plan);
                self.try_early(actions);
            }
            ToWorker::Peers {
                from, to, changed, ..
            } => {
                if from <= self.peers_state && self.peers_state < to {
                    let changes = changed.iter().map(|peer| (peer.container(), peer.clone()));
                    self.peers.extend(changes);
                    self.peers_state = to;
                    actions.push(AgentAction::Peers(changed));
                }
                self.try_early(actions);
            }
            ToWorker::Assign(assignment) => self.assigned(assignment, actions),
            ToWorker::Epochs(message) => self.in_epochs(ParticipantEvent::From(message), actions),
            ToWorker::Leave(_) => self.leave(LeaveReason::JobOver, actions),
        }
    }

    fn welcomed(&mut self, now: Duration) {
        if let Link::Asking { address, .. } = &self.link {
            self.link = Link::Joined {
                address: address.clone(),
                heard: now,
                heartbeat_at: now,
            };
        }
    }

    fn try_early(&mut self, actions: &mut Vec<AgentAction>) {
        if let Some(assignment) = self.early.take() {
            self.assigned(assignment, actions);
        }
    }

    fn assigned(&mut self, assignment: Arc<Assignment>, actions: &mut Vec<AgentAction>) {
        let last = self.target.as_ref().map(|target| target.order);
        if last >= Some(assignment.order) {
            // The assignment was received before. If it has been carried out, the master has missed
            // the report.
            if last == Some(assignment.order) {
                self.report_now();
            }
            return;
        }
        let versions = [assignment.routes, assignment.next, assignment.last];
        let plans = versions.map(|version| self.plans.get(&version).map(Arc::clone));
        let has_peers = self.peers_state >= assignment.peers;
        let ([Some(routes), Some(next), Some(last)], true) = (plans, has_peers) else {
            // The plans or peers that the assignment refers to were delayed or lost. If they were
            // lost, the master sends all of them again.
            if self
                .early
                .as_ref()
                .is_none_or(|early| early.order < assignment.order)
            {
                self.early = Some(assignment);
            }
            return;
        };
        self.plans
            .retain(|version, _| versions.contains(version) || *version >= assignment.next);
        let begins = self.begins(assignment.attempt);
        let before: BTreeSet<&InstanceId> = self.instances().iter().collect();
        let after: BTreeSet<&InstanceId> = assignment.instances.iter().collect();
        let changed = |from: &BTreeSet<&InstanceId>, than: &BTreeSet<&InstanceId>| -> Vec<_> {
            let changed = from.iter().filter(|id| begins || !than.contains(*id));
            changed.map(|id| (*id).clone()).collect()
        };
        let (start, stop) = (changed(&after, &before), changed(&before, &after));
        let previous = self.target.take();
        let mut stopping = previous.map(|target| target.stopping).unwrap_or_default();
        stopping.extend(stop.iter().cloned());
        self.target = Some(Target {
            order: assignment.order,
            instances: Arc::clone(&assignment.instances),
            stopping,
            run: assignment.run,
            routes: assignment.routes,
            attempt: assignment.attempt,
            is_joining: assignment
                .restarted
                .iter()
                .any(|it| it.worker == self.worker && !it.is_complete),
        });
        actions.push(AgentAction::Apply(Change {
            order: assignment.order,
            start,
            stop,
            run: assignment.run,
            routes,
            next,
            last,
            attempt: assignment.attempt,
            begins,
            restarted: Arc::clone(&assignment.restarted),
        }));
    }

    fn generation(&self) -> Option<Generation> {
        self.attempt().map(|life| life.generation)
    }

    /// If `life` is another attempt than the current one, joins it and returns true.
    fn begins(&mut self, life: Option<ExecutionAttempt>) -> bool {
        let begins = self.generation() != life.map(|life| life.generation);
        if begins {
            let participant = ParticipantId::of(self.worker.container);
            self.epochs = life
                .map(|life| CheckpointParticipant::new(participant, life.generation, life.from));
            self.scope = RecoveryScope::default();
            self.life_over = None;
        }
        begins
    }

    fn in_epochs(&mut self, event: ParticipantEvent, actions: &mut Vec<AgentAction>) {
        let Some(epochs) = &mut self.epochs else {
            return;
        };
        let generation = epochs.generation();
        for action in epochs.on(event) {
            match action {
                ParticipantAction::Send(message) => {
                    let worker = self.worker;
                    self.send(ToMaster::Epochs { worker, message }, actions);
                }
                action => actions.push(AgentAction::Epochs(generation, action)),
            }
        }
    }

    fn report_attempt_over(&self, actions: &mut Vec<AgentAction>) {
        if let Some((generation, why)) = self.life_over.clone() {
            let worker = self.worker;
            let over = ToMaster::AttemptOver {
                worker,
                generation,
                why,
            };
            self.send(over, actions);
        }
    }

    fn carried_out(&mut self, now: Duration, order: Order) {
        let Some(target) = self.target.as_mut().filter(|target| target.order == order) else {
            return; // a later change is pending
        };
        target.stopping.clear();
        self.applied = Some(order);
        if let Link::Joined { heartbeat_at, .. } = &mut self.link {
            *heartbeat_at = now;
        }
    }

    fn report_now(&mut self) {
        if let Link::Joined { heartbeat_at, .. } = &mut self.link {
            *heartbeat_at = Duration::ZERO;
        }
    }

    /// Looks up a master, registers, or sends a heartbeat, whichever is due.
    fn contact_master(&mut self, now: Duration, actions: &mut Vec<AgentAction>) {
        let silent = |since: Duration| now >= since + self.config.silent_after;
        match &self.link {
            Link::Joined { heard, .. } if silent(*heard) => self.link = Link::Seeking,
            Link::Asking { since, .. } if silent(*since) => self.link = Link::Seeking,
            _ => {}
        }
        match &mut self.link {
            Link::Seeking if now >= self.ask_at => {
                self.ask_at = now + self.config.ask_every;
                actions.push(AgentAction::LookUp);
            }
            Link::Asking { .. } if now >= self.ask_at => {
                self.ask_at = now + self.config.ask_every;
                let registration = self.registration();
                self.send(ToMaster::Register(registration), actions);
            }
            Link::Joined { heartbeat_at, .. } if now >= *heartbeat_at => {
                *heartbeat_at = now + self.config.heartbeat_every;
                let status = Status {
                    worker: self.worker,
                    applied: self.applied,
                    ended: self.applied.is_some() && self.ended == self.applied,
                    scope: self.scope,
                };
                self.send(ToMaster::Status(status), actions);
                self.report_attempt_over(actions);
            }
            _ => {}
        }
    }

    fn registration(&self) -> Registration {
        let held = self.target.as_ref().map(|target| RunningAssignment {
            instances: match target.stopping.is_empty() {
                true => Arc::clone(&target.instances),
                false => {
                    let instances = target.instances.iter().chain(&target.stopping);
                    instances.cloned().collect()
                }
            },
            plans: self.plans.keys().copied().collect(),
            attempt: self.generation().filter(|_| !target.is_joining),
        });
        Registration {
            worker: self.worker,
            who: self.who.clone(),
            endpoint: Arc::clone(&self.endpoint),
            held,
        }
    }

    fn send(&self, message: ToMaster, actions: &mut Vec<AgentAction>) {
        match &self.link {
            Link::Seeking => {}
            Link::Asking { address, .. } | Link::Joined { address, .. } => {
                actions.push(AgentAction::Send(address.clone(), message));
            }
        }
    }

    fn leave(&mut self, why: LeaveReason, actions: &mut Vec<AgentAction>) {
        self.over = true;
        actions.push(AgentAction::Exit(why));
    }
}

#[cfg(test)]
mod tests;
