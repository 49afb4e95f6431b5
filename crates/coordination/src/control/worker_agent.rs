//! The worker's side: finds the master, joins it, does what the newest order says, and goes on when there is no master.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{ContainerId, InstanceId, PackingPlan};

use crate::control::{
    Assignment, Credentials, EpochsAgent, EpochsAgentAction, EpochsAgentEvent, Generation, Held,
    Life, LifeEnd, MasterEpoch, Order, ParticipantId, Peer, PlanVersion, Refused, Registration,
    Run, Status, ToMaster, ToWorker, WorkerId,
};

/// Times of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    /// How often it says that it is still here.
    pub heartbeat_every: Duration,
    /// After so long without a word from the master it looks for another.
    pub silent_after: Duration,
    /// How often it looks for a master, and asks to be taken.
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

/// What happens to a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AgentEvent {
    /// Time has passed; comes at least every 50 ms.
    Tick,
    /// What the state manager says of the job's master.
    Lookup(Lookup),
    /// A word from a master.
    From(ToWorker),
    /// The connection to the master was closed.
    Closed,
    /// The change of this order has been carried out: exactly its instances run.
    Applied(Order),
    /// All instances of this order, which has been carried out, have come to their end, and ended well.
    Ended(Order),
    /// An instance has failed, and is being restarted.
    Failed(InstanceId, String),
    /// Something has come of the epochs of that life, here. What it was told by its master, the agent knows by itself.
    Epochs(Generation, EpochsAgentEvent),
    /// That life can't go on here, or can't begin. Told before anything that comes of it, such as a cut: nothing is saved in it from then on.
    LifeOver(Generation, LifeEnd),
}

/// What the state manager says of the job's master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// It is there.
    Master {
        /// Where.
        address: String,
        /// Which one it is.
        epoch: MasterEpoch,
    },
    /// There is none at the moment.
    Nobody,
    /// There is no such job any more.
    JobGone,
}

/// What a worker wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AgentAction {
    /// Ask the state manager where the job's master is.
    LookUp,
    /// Send this to the process at that address; it may be lost.
    Send(String, ToMaster),
    /// These workers are new, or have moved: connect to them.
    Peers(Arc<[Peer]>),
    /// Change what runs, after all changes before this one; then say [`AgentEvent::Applied`].
    Apply(Change),
    /// Something about the epochs of that life, which runs here; never [`EpochsAgentAction::Tell`].
    Epochs(Generation, EpochsAgentAction),
    /// Stop everything and end the process.
    Exit(Departure),
}

/// A change of what a worker runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The order that asks for it.
    pub order: Order,
    /// To start.
    pub start: Vec<InstanceId>,
    /// To stop.
    pub stop: Vec<InstanceId>,
    /// Whether sources read.
    pub run: Run,
    /// The plan by which records are routed from now on.
    pub routes: Arc<PackingPlan>,
    /// The plan by which they will be routed next; the same one, unless plans are being changed.
    pub next: Arc<PackingPlan>,
    /// The plan by which records were routed that may still be under way; the same one, unless the routes have just been switched.
    pub last: Arc<PackingPlan>,
    /// The life that what runs belongs to, if the job has lives.
    pub life: Option<Life>,
    /// Whether that is another one than before: then all that ran is to be stopped, and everything begins as that life says. Nothing that
    /// comes of what ran before counts any more.
    pub begins: bool,
}

/// Why a worker ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Departure {
    /// The job is over.
    JobOver,
    /// The master has refused it.
    Refused(Refused),
}

/// The control side of a worker.
///
/// It obeys the newest master that it has heard of and tells others that they are none. Without a master it goes on with what it
/// runs, and looks for one.
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
    /// The newest order whose instances have all ended.
    ended: Option<Order>,
    plans: BTreeMap<PlanVersion, Arc<PackingPlan>>,
    peers: BTreeMap<ContainerId, Peer>,
    /// The state of the table of peers.
    peers_state: Order,
    /// An assignment that has come before what it speaks of.
    early: Option<Arc<Assignment>>,
    /// Its part in the epochs of the life that it runs.
    epochs: Option<EpochsAgent>,
    /// The life that can't go on here.
    life_over: Option<(Generation, LifeEnd)>,
    over: bool,
}

/// What this worker has been told to run.
#[derive(Debug)]
struct Target {
    order: Order,
    instances: Arc<[InstanceId]>,
    /// What was to be stopped by changes that may not have been carried out.
    stopping: BTreeSet<InstanceId>,
    run: Run,
    routes: PlanVersion,
    life: Option<Life>,
}

#[derive(Debug)]
enum Link {
    /// Looking for a master.
    Seeking,
    /// Knows where one should be, and asks to be taken.
    Asking { address: String, since: Duration },
    /// A member.
    Joined {
        address: String,
        heard: Duration,
        heartbeat_at: Duration,
    },
}

impl WorkerAgent {
    /// A worker that was just started.
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
            life_over: None,
            over: false,
        }
    }

    /// Who it is.
    pub fn id(&self) -> WorkerId {
        self.worker
    }

    /// What it has been told to run; nothing before the first assignment.
    pub fn instances(&self) -> &[InstanceId] {
        self.target.as_ref().map_or(&[], |target| &target.instances)
    }

    /// Whether sources read.
    pub fn run(&self) -> Run {
        self.target
            .as_ref()
            .map_or(Run::Prepared, |target| target.run)
    }

    /// The plan by which records are routed, if there has been an assignment.
    pub fn routes(&self) -> Option<PlanVersion> {
        self.target.as_ref().map(|target| target.routes)
    }

    /// The life that it has been told to run, if the job has lives.
    pub fn life(&self) -> Option<Life> {
        self.target.as_ref()?.life
    }

    /// Its part in the epochs of that life.
    pub fn epochs(&self) -> Option<&EpochsAgent> {
        self.epochs.as_ref()
    }

    /// Where a container's worker is, as far as this one knows.
    pub fn peer(&self, container: ContainerId) -> Option<&Peer> {
        self.peers.get(&container)
    }

    /// The newest assignment that is carried out.
    pub fn applied(&self) -> Option<Order> {
        self.applied
    }

    /// Deals with an event. After [`AgentAction::Exit`] nothing happens any more.
    pub fn on(&mut self, now: Duration, event: AgentEvent) -> Vec<AgentAction> {
        let mut actions = Vec::new();
        if self.over {
            return actions;
        }
        match event {
            AgentEvent::Tick => {}
            AgentEvent::Lookup(found) => self.looked_up(now, found, &mut actions),
            AgentEvent::From(message) => self.told(now, message, &mut actions),
            AgentEvent::Closed => self.link = Link::Seeking,
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
                // What is saved once something may have been lost is no cut through all of the job.
                let is_over = self.life_over.is_some();
                let counts = !is_over || matches!(event, EpochsAgentEvent::Visible(_));
                if self.generation() == Some(generation) && counts {
                    self.in_epochs(event, &mut actions);
                }
            }
            AgentEvent::LifeOver(generation, why) => {
                if self.generation() == Some(generation) && self.life_over.is_none() {
                    self.life_over = Some((generation, why));
                    self.tell_life_over(&mut actions);
                }
            }
        }
        if !self.over {
            self.keep_in_touch(now, &mut actions);
        }
        actions
    }

    fn looked_up(&mut self, now: Duration, found: Lookup, actions: &mut Vec<AgentAction>) {
        match found {
            Lookup::Master { address, epoch } => {
                // The record of a master that has been taken over may still be there.
                if epoch >= self.epoch && matches!(self.link, Link::Seeking) {
                    self.link = Link::Asking {
                        address,
                        since: now,
                    };
                    self.ask_at = now;
                }
            }
            Lookup::Nobody => {}
            Lookup::JobGone => self.leave(Departure::JobOver, actions),
        }
    }

    fn told(&mut self, now: Duration, message: ToWorker, actions: &mut Vec<AgentAction>) {
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
            // What an earlier master wanted must not be done any more, even if it can be now.
            self.early = None;
        }
        match &mut self.link {
            Link::Joined { heard, .. } => *heard = now,
            Link::Asking { since, .. } => *since = now,
            Link::Seeking => {}
        }
        match message {
            ToWorker::Welcome(_) => self.welcomed(now),
            ToWorker::Refused(_, refused) => self.leave(Departure::Refused(refused), actions),
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
            ToWorker::Heard(_) => {}
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
            ToWorker::Epochs(message) => self.in_epochs(EpochsAgentEvent::From(message), actions),
            ToWorker::Leave(_) => self.leave(Departure::JobOver, actions),
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
            // Heard before: if it has been carried out, the master has missed that.
            if last == Some(assignment.order) {
                self.report_now();
            }
            return;
        }
        let versions = [assignment.routes, assignment.next, assignment.last];
        let plans = versions.map(|version| self.plans.get(&version).map(Arc::clone));
        let has_peers = self.peers_state >= assignment.peers;
        let ([Some(routes), Some(next), Some(last)], true) = (plans, has_peers) else {
            // What it speaks of has been overtaken or lost; in the latter case the master sends all of it again.
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
        let begins = self.begins(assignment.life);
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
            life: assignment.life,
        });
        actions.push(AgentAction::Apply(Change {
            order: assignment.order,
            start,
            stop,
            run: assignment.run,
            routes,
            next,
            last,
            life: assignment.life,
            begins,
        }));
    }

    fn generation(&self) -> Option<Generation> {
        self.life().map(|life| life.generation)
    }

    /// Whether that is another life than the one that runs here; takes part in it from now on.
    fn begins(&mut self, life: Option<Life>) -> bool {
        let begins = self.generation() != life.map(|life| life.generation);
        if begins {
            let participant = ParticipantId::of(self.worker.container);
            self.epochs =
                life.map(|life| EpochsAgent::new(participant, life.generation, life.from));
            self.life_over = None;
        }
        begins
    }

    fn in_epochs(&mut self, event: EpochsAgentEvent, actions: &mut Vec<AgentAction>) {
        let Some(epochs) = &mut self.epochs else {
            return;
        };
        let generation = epochs.generation();
        for action in epochs.on(event) {
            match action {
                EpochsAgentAction::Tell(message) => {
                    let worker = self.worker;
                    self.send(ToMaster::Epochs { worker, message }, actions);
                }
                action => actions.push(AgentAction::Epochs(generation, action)),
            }
        }
    }

    fn tell_life_over(&self, actions: &mut Vec<AgentAction>) {
        if let Some((generation, why)) = self.life_over.clone() {
            let worker = self.worker;
            let over = ToMaster::LifeOver {
                worker,
                generation,
                why,
            };
            self.send(over, actions);
        }
    }

    fn carried_out(&mut self, now: Duration, order: Order) {
        let Some(target) = self.target.as_mut().filter(|target| target.order == order) else {
            return; // a later change is on its way
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

    /// Looks for a master, asks it, or tells it that this worker is still here, whichever is due.
    fn keep_in_touch(&mut self, now: Duration, actions: &mut Vec<AgentAction>) {
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
                };
                self.send(ToMaster::Status(status), actions);
                self.tell_life_over(actions);
            }
            _ => {}
        }
    }

    fn registration(&self) -> Registration {
        let held = self.target.as_ref().map(|target| Held {
            instances: match target.stopping.is_empty() {
                true => Arc::clone(&target.instances),
                false => {
                    let instances = target.instances.iter().chain(&target.stopping);
                    instances.cloned().collect()
                }
            },
            plans: self.plans.keys().copied().collect(),
            life: self.generation(),
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

    fn leave(&mut self, why: Departure, actions: &mut Vec<AgentAction>) {
        self.over = true;
        actions.push(AgentAction::Exit(why));
    }
}

#[cfg(test)]
mod tests;
