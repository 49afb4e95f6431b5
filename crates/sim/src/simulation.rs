//! The simulated world: processes on hosts, events, and their execution.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    Candidate, Change, CheckpointRecord, Command, CommandId, ContainersToMove, Generation,
    JobDefinition, JobRecord, JobRef, LeaseConfig, LeaseRecord, Lookup, MasterConfig, MasterEpoch,
    Order, PlanVersion, Rejection, RequestId, SchedulerAnswer, SchedulerCall, SchedulerTraits,
    StoreReply, StoreRequest, ToMaster, ToWorker, WorkerAgent, WorkerId,
};
use ardea_coordination::packing::{
    ContainerId, InstanceId, JobDemand, PackingConfig, PackingPolicy,
};
use ardea_core::Epoch;

use crate::attempts::{AttemptChecker, GuaranteeConfig, InFlightMessage, Snapshot, WorkerAttempt};
use crate::cluster::{Cluster, Operation};
use crate::event_queue::EventQueue;
use crate::faults::Fault;
use crate::invariants::InvariantChecker;
use crate::metastore::SimMetastore;
use crate::network::{Host, Network, Node};
use crate::random::Random;
use crate::stopwatch::Stopwatch;
use crate::upgrades;
use crate::user::User;

/// The interval of tick events.
pub const TICK: Duration = Duration::from_millis(50);

/// The configuration of a simulation.
#[derive(Clone)]
pub struct WorldConfig {
    /// The demand of the job.
    pub demand: JobDemand,
    /// The configuration of the job's packing.
    pub packing: PackingConfig,
    /// The packing policy.
    pub manager: Arc<dyn PackingPolicy>,
    /// The number of processes that may be the leader.
    pub masters: u32,
    /// The number of hosts for containers.
    pub hosts: u32,
    /// True if the scheduler is stateful.
    pub stateful: bool,
    /// True if the scheduler stops processes that it could not reach as soon as their host is back.
    pub stops_leftovers: bool,
    /// True if clocks of masters exceed the drift that leases allow for. Then there may be two
    /// leaders, and fencing must prevent damage by the earlier one.
    pub wild_clocks: bool,
    /// The time after which instances complete, or `None` if they never do.
    pub ends_at: Option<Duration>,
    /// True if messages to workers are encoded, to measure the cost.
    pub encodes: bool,
    /// The settings of a job with a guarantee.
    pub survival: Option<GuaranteeConfig>,
}

#[derive(Debug)]
pub(crate) enum Event {
    TickMaster(u32),
    TickWorker(WorkerId),
    TickUser,
    Deliver {
        from: Host,
        to: Node,
        message: Message,
    },
    Applied(WorkerId, Order),
    Start(WorkerId),
    StartMaster,
    Fault(Fault),
    /// The framework of a stateless scheduler gives up on an unreachable host.
    GiveUp(WorkerId),
    /// An item sent by one worker to another arrives.
    Arrive(InFlightMessage),
    /// A snapshot becomes durable.
    Save(WorkerId, Generation, Snapshot),
    /// Sinks publish the output of a committed epoch.
    Show(WorkerId, Generation, Epoch),
    /// The scheduler reports the containers that must leave their hosts.
    SayDisplaced,
    /// Unneeded checkpoints of a submission are removed.
    Sweep(u64, Vec<Epoch>, Epoch, Generation),
}

#[derive(Clone, Debug)]
pub(crate) enum Message {
    ToMaster(ToMaster),
    ToWorker(ToWorker),
    /// The connection to a master was closed.
    MasterClosed,
    WorkerClosed(WorkerId),
    Exited(WorkerId),
    Lease(u32, RequestId, StoreRequest<LeaseRecord>),
    LeaseReply(RequestId, StoreReply<LeaseRecord>),
    Record(u32, RequestId, StoreRequest<Arc<JobRecord>>),
    RecordReply(RequestId, StoreReply<Arc<JobRecord>>),
    Epochs(u32, RequestId, StoreRequest<Arc<CheckpointRecord>>),
    EpochsReply(RequestId, StoreReply<Arc<CheckpointRecord>>),
    LookUp(WorkerId),
    LookedUp(Lookup),
    DropLease(u32),
    LeaseDropped,
    Call(u32, Order, SchedulerCall),
    Answer(Order, SchedulerAnswer),
    Displaced(Vec<ContainersToMove>),
    Command(CommandId, Command),
    CommandReply(CommandId, Result<(), Rejection>),
}

/// The clock of a process, with an arbitrary origin and a small drift.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SkewedClock {
    started: Duration,
    /// The drift in thousandths.
    fast: i64,
}

impl SkewedClock {
    pub(crate) fn new(now: Duration, random: &mut Random, most: u64) -> Self {
        SkewedClock {
            started: now,
            fast: random.below(2 * most + 1) as i64 - most as i64,
        }
    }

    pub(crate) fn read(&self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.started).as_micros() as i64;
        Duration::from_micros((passed + passed * self.fast / 1000) as u64)
    }
}

/// A process that may be the leader.
#[derive(Debug)]
pub(crate) struct MasterProcess {
    pub(crate) candidate: Candidate,
    pub(crate) clock: SkewedClock,
    /// True if the job is gone, and the process removes the lease and exits.
    pub(crate) leaving: bool,
    /// The instances assigned to each worker by this leadership.
    pub(crate) assigned: BTreeMap<WorkerId, BTreeSet<InstanceId>>,
    /// The containers whose workers the master considers lost.
    pub(crate) aborted: BTreeSet<ContainerId>,
}

#[derive(Debug)]
pub(crate) struct WorkerProcess {
    /// The submission that the process was started for.
    pub(crate) of: u64,
    pub(crate) agent: WorkerAgent,
    pub(crate) clock: SkewedClock,
    pub(crate) host: Host,
    pub(crate) changes: Vec<Change>,
    /// The worker's part of the execution attempt, in a job with a guarantee.
    pub(crate) part: Option<WorkerAttempt>,
    /// The instances that actually run.
    pub(crate) running: BTreeSet<InstanceId>,
    pub(crate) busy_until: Duration,
    /// The running instances that have completed.
    pub(crate) ended: BTreeSet<InstanceId>,
    /// The last change that was carried out.
    pub(crate) applied: Option<Order>,
    /// The newest master epoch that the worker has received.
    pub(crate) heard_of: MasterEpoch,
    /// The newest plan that the worker has routed by.
    pub(crate) routes: Option<PlanVersion>,
}

/// The simulated world.
pub struct World {
    pub(crate) config: WorldConfig,
    /// The job, or the last one that has replaced it.
    pub(crate) job: JobRef,
    pub(crate) definition: JobDefinition,
    pub(crate) random: Random,
    pub(crate) now: Duration,
    pub(crate) timeline: EventQueue<Event>,
    pub(crate) network: Network,
    pub(crate) metastore: SimMetastore,
    pub(crate) cluster: Cluster,
    pub(crate) masters: BTreeMap<u32, MasterProcess>,
    pub(crate) masters_started: u32,
    /// The submission of each process. Messages of processes that have ended may still be in
    /// transit.
    pub(crate) led: BTreeMap<u32, u64>,
    pub(crate) workers: BTreeMap<WorkerId, WorkerProcess>,
    /// Processes to be stopped when their host is reachable.
    pub(crate) leftovers: BTreeSet<WorkerId>,
    pub(crate) drained: BTreeSet<Host>,
    pub(crate) user: User,
    pub(crate) watch: InvariantChecker,
    pub(crate) stopwatch: Stopwatch,
    /// The checker of a job with a guarantee.
    pub(crate) attempts: Option<AttemptChecker>,
}

impl World {
    /// Creates a world in which the job has just been submitted.
    pub fn new(config: WorldConfig, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let job = JobRef {
            cluster: "sim".to_string(),
            name: config.demand.job.clone(),
            submission: random.any(),
        };
        let demand = config.demand.clone();
        let record = JobRecord::submitted(job.clone(), demand, config.packing.clone());
        let mut shelf = SimMetastore::default();
        let submitted = StoreRequest::Write {
            value: Arc::new(record),
            expected: None,
        };
        let mut watch = InvariantChecker::default();
        if let Err(broken) = shelf.record(submitted) {
            watch.broken(broken);
        }
        let mut world = World {
            cluster: Cluster::new(config.stateful),
            definition: upgrades::definition(&job),
            job,
            random,
            now: Duration::ZERO,
            timeline: EventQueue::new(),
            network: Network::new(),
            metastore: shelf,
            masters: BTreeMap::new(),
            masters_started: 0,
            led: BTreeMap::new(),
            workers: BTreeMap::new(),
            leftovers: BTreeSet::new(),
            drained: BTreeSet::new(),
            user: User::default(),
            watch,
            stopwatch: Stopwatch::new(config.encodes),
            attempts: config.survival.map(AttemptChecker::new),
            config,
        };
        for _ in 0..world.config.masters {
            world.start_master();
        }
        world.timeline.plan(TICK, Event::TickUser);
        world
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Returns the most recent log lines.
    pub fn log(&self) -> impl Iterator<Item = &str> {
        self.watch.log()
    }

    /// Returns the time at which the job was first running with all of its workers.
    pub fn first_running(&self) -> Option<Duration> {
        self.watch.first_running
    }

    /// Executes the next event.
    ///
    /// # Errors
    ///
    /// If an invariant is violated.
    pub fn step(&mut self) -> Result<(), String> {
        let Some((at, event)) = self.timeline.take() else {
            return Err("nothing happens any more".to_string());
        };
        self.now = at;
        match event {
            Event::TickMaster(id) => self.tick_master(id),
            Event::TickWorker(id) => self.tick_worker(id),
            Event::TickUser => self.tick_user(),
            Event::Deliver { from, to, message } => {
                if self
                    .host(to)
                    .is_some_and(|host| self.network.connects(from, host))
                {
                    self.deliver(to, message);
                }
            }
            Event::Applied(worker, order) => self.applied(worker, order),
            Event::Start(worker) => self.start_worker(worker),
            Event::StartMaster => {
                // Only on hosts without a process of this job: another job may have replaced this
                // one and have got its own processes.
                let there = self.masters.keys().filter(|id| self.is_of_job(**id));
                if there.count() < self.config.masters as usize {
                    self.start_master();
                }
            }
            Event::Fault(fault) => self.inject(fault),
            Event::GiveUp(worker) => self.give_up(worker),
            Event::Arrive(freight) => self.arrives(freight),
            Event::Save(worker, generation, snapshot) => self.saves(worker, generation, snapshot),
            Event::Show(worker, generation, epoch) => self.shows(worker, generation, epoch),
            Event::SayDisplaced => self.say_displaced(),
            Event::Sweep(of, epochs, below, present) => {
                if let Some(lives) = &mut self.attempts {
                    lives.program(of).storage.keep(&epochs, below, present.0);
                }
            }
        }
        self.check_step()
    }

    /// Returns the host of a process, or `None` if it has ended.
    pub(crate) fn host(&self, node: Node) -> Option<Host> {
        match node {
            Node::Store => Some(Host(0)),
            Node::Scheduler | Node::User => Some(Host(1)),
            Node::Master(id) => self.masters.contains_key(&id).then(|| self.master_host(id)),
            Node::Worker(id) => self.workers.get(&id).map(|worker| worker.host),
        }
    }

    /// Returns the submission that a process was started to lead.
    pub(crate) fn led_by(&self, master: u32) -> u64 {
        self.led.get(&master).copied().unwrap_or_default()
    }

    /// Returns true if a process belongs to the current job and not to a predecessor.
    pub(crate) fn is_of_job(&self, master: u32) -> bool {
        self.led_by(master) == self.job.submission
    }

    pub(crate) fn master_host(&self, id: u32) -> Host {
        Host(2 + id % self.config.masters)
    }

    /// Returns the hosts for containers.
    pub(crate) fn worker_hosts(&self) -> impl Iterator<Item = Host> + use<> {
        let first = 2 + self.config.masters;
        (first..first + self.config.hosts).map(Host)
    }

    /// Sends a message over the simulated network.
    pub(crate) fn send(&mut self, from: Node, to: Node, message: Message) {
        if let Some(from) = self.host(from) {
            self.send_from(from, to, message);
        }
    }

    pub(crate) fn send_from(&mut self, from: Host, to: Node, message: Message) {
        for after in self.network.arrivals(&mut self.random) {
            let message = message.clone();
            let event = Event::Deliver { from, to, message };
            self.timeline.plan(self.now + after, event);
        }
    }

    pub(crate) fn do_deeds(&mut self, deeds: Vec<Operation>) {
        for deed in deeds {
            match deed {
                Operation::Start(worker) => {
                    let after = Duration::from_millis(50)..Duration::from_millis(400);
                    let at = self.now + self.random.time(after.start, after.end);
                    self.timeline.plan(at, Event::Start(worker));
                }
                Operation::Stop(worker) => self.stop_worker(worker),
            }
        }
    }

    fn start_master(&mut self) {
        let id = self.masters_started;
        self.masters_started += 1;
        self.led.insert(id, self.job.submission);
        let name = format!("master-{id}");
        let config = MasterConfig {
            scheduler: SchedulerTraits {
                stateful: self.config.stateful,
                homogeneous: false,
            },
            epochs: self.config.survival.map(|survival| survival.epochs),
            room_within: Duration::from_secs(10),
            ..MasterConfig::default()
        };
        let most = if self.config.wild_clocks { 600 } else { 10 };
        let manager = Arc::clone(&self.config.manager);
        let (job, lease) = (self.job.clone(), LeaseConfig::default());
        let process = MasterProcess {
            candidate: Candidate::new(&name, &id.to_string(), job, manager, lease, config),
            clock: SkewedClock::new(self.now, &mut self.random, most),
            leaving: false,
            assigned: BTreeMap::new(),
            aborted: BTreeSet::new(),
        };
        self.masters.insert(id, process);
        self.timeline.plan(self.now, Event::TickMaster(id));
    }
}
