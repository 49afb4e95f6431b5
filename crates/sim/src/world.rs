//! The simulated world: processes on hosts, what happens to them, and what they do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    Candidate, Change, Command, CommandId, Displaced, EpochsRecord, Generation, JobDefinition,
    JobRecord, JobRef, LeaseConfig, LeaseRecord, Lookup, MasterConfig, MasterEpoch, Order,
    PlanVersion, Refused, RequestId, SchedulerAnswer, SchedulerCall, SchedulerTraits, StoreReply,
    StoreRequest, ToMaster, ToWorker, WorkerAgent, WorkerId,
};
use ardea_coordination::packing::{
    ContainerId, InstanceId, JobDemand, PackingConfig, ResourceManager,
};
use ardea_core::Epoch;

use crate::cluster::{Cluster, Deed};
use crate::faults::Fault;
use crate::lives::{Cut, Freight, Lives, Part, Survival};
use crate::network::{Host, Network, Node};
use crate::random::Random;
use crate::shelf::Shelf;
use crate::stopwatch::Stopwatch;
use crate::timeline::Timeline;
use crate::upgrades;
use crate::user::User;
use crate::watch::Watch;

/// How often processes are told that time has passed.
pub const TICK: Duration = Duration::from_millis(50);

/// What is simulated.
#[derive(Clone)]
pub struct WorldConfig {
    /// The job.
    pub demand: JobDemand,
    /// How it is packed.
    pub packing: PackingConfig,
    /// By which policy.
    pub manager: Arc<dyn ResourceManager>,
    /// How many processes may be master.
    pub masters: u32,
    /// How many hosts containers run on.
    pub hosts: u32,
    /// Whether the scheduler is stateful.
    pub stateful: bool,
    /// Whether the scheduler stops, when their host comes back, processes that it could not reach.
    pub stops_leftovers: bool,
    /// Whether clocks of masters run at speeds that leases don't allow for: then there may be two masters, and fencing has to
    /// keep the earlier one from doing harm.
    pub wild_clocks: bool,
    /// From when on instances come to their end by themselves; of a job that goes on for ever, never.
    pub ends_at: Option<Duration>,
    /// Whether messages to workers are encoded, to see what that takes.
    pub encodes: bool,
    /// What the job promises, if it has a guarantee: then it lives and dies as a whole.
    pub survival: Option<Survival>,
}

/// What happens.
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
    /// The framework of a stateless scheduler gives a host up that it doesn't reach.
    GiveUp(WorkerId),
    /// Something arrives that a worker sent to another.
    Arrive(Freight),
    /// A cut becomes durable.
    Save(WorkerId, Generation, Cut),
    /// Sinks publish what belongs to a committed epoch.
    Show(WorkerId, Generation, Epoch),
    /// The scheduler says which containers are to leave their hosts.
    SayDisplaced,
    /// Snapshots of a submission are dropped that are not needed.
    Sweep(u64, Vec<Epoch>, Epoch, Generation),
}

/// What processes say to each other.
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
    Epochs(u32, RequestId, StoreRequest<Arc<EpochsRecord>>),
    EpochsReply(RequestId, StoreReply<Arc<EpochsRecord>>),
    LookUp(WorkerId),
    LookedUp(Lookup),
    DropLease(u32),
    LeaseDropped,
    Call(u32, Order, SchedulerCall),
    Answer(Order, SchedulerAnswer),
    Displaced(Vec<Displaced>),
    Command(CommandId, Command),
    CommandReply(CommandId, Result<(), Refused>),
}

/// A clock of a process: set to any time, and a little fast or slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SkewedClock {
    started: Duration,
    /// How many thousandths faster than time.
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

/// A process that may be master.
#[derive(Debug)]
pub(crate) struct MasterProcess {
    pub(crate) candidate: Candidate,
    pub(crate) clock: SkewedClock,
    /// The job is gone: it removes the lease, and ends.
    pub(crate) leaving: bool,
    /// What this mastership has told each worker to run.
    pub(crate) told: BTreeMap<WorkerId, BTreeSet<InstanceId>>,
    /// The containers whose workers it has given up.
    pub(crate) given_up: BTreeSet<ContainerId>,
}

/// A worker's process.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    /// The submission that it was started for.
    pub(crate) of: u64,
    pub(crate) agent: WorkerAgent,
    pub(crate) clock: SkewedClock,
    pub(crate) host: Host,
    /// Changes that are being carried out, the oldest first.
    pub(crate) changes: Vec<Change>,
    /// What it has of a life of the job, if that has lives.
    pub(crate) part: Option<Part>,
    /// What runs in earnest.
    pub(crate) running: BTreeSet<InstanceId>,
    pub(crate) busy_until: Duration,
    /// Of what runs, what has come to its end by itself.
    pub(crate) ended: BTreeSet<InstanceId>,
    /// The last change that has been carried out.
    pub(crate) applied: Option<Order>,
    /// The newest master that it has heard of.
    pub(crate) heard_of: MasterEpoch,
    /// The newest plan that it has routed by.
    pub(crate) routes: Option<PlanVersion>,
}

/// The simulated world.
pub struct World {
    pub(crate) config: WorldConfig,
    /// The job, or the one that has followed it last.
    pub(crate) job: JobRef,
    /// What was submitted of it.
    pub(crate) definition: JobDefinition,
    pub(crate) random: Random,
    pub(crate) now: Duration,
    pub(crate) timeline: Timeline<Event>,
    pub(crate) network: Network,
    pub(crate) shelf: Shelf,
    pub(crate) cluster: Cluster,
    pub(crate) masters: BTreeMap<u32, MasterProcess>,
    pub(crate) masters_started: u32,
    /// The submission that each was started for: what one has sent that has ended may still be under way.
    pub(crate) led: BTreeMap<u32, u64>,
    pub(crate) workers: BTreeMap<WorkerId, WorkerProcess>,
    /// Processes that are to be stopped when their host can be reached.
    pub(crate) leftovers: BTreeSet<WorkerId>,
    /// The hosts that are drained.
    pub(crate) drained: BTreeSet<Host>,
    pub(crate) user: User,
    pub(crate) watch: Watch,
    pub(crate) stopwatch: Stopwatch,
    /// Of a job with a guarantee.
    pub(crate) lives: Option<Lives>,
}

impl World {
    /// A world in which the job has just been submitted.
    pub fn new(config: WorldConfig, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let job = JobRef {
            cluster: "sim".to_string(),
            name: config.demand.job.clone(),
            submission: random.any(),
        };
        let demand = config.demand.clone();
        let record = JobRecord::submitted(job.clone(), demand, config.packing.clone());
        let mut shelf = Shelf::default();
        let submitted = StoreRequest::Write {
            value: Arc::new(record),
            expected: None,
        };
        let mut watch = Watch::default();
        if let Err(broken) = shelf.record(submitted) {
            watch.broken(broken);
        }
        let mut world = World {
            cluster: Cluster::new(config.stateful),
            definition: upgrades::definition(&job),
            job,
            random,
            now: Duration::ZERO,
            timeline: Timeline::new(),
            network: Network::new(),
            shelf,
            masters: BTreeMap::new(),
            masters_started: 0,
            led: BTreeMap::new(),
            workers: BTreeMap::new(),
            leftovers: BTreeSet::new(),
            drained: BTreeSet::new(),
            user: User::default(),
            watch,
            stopwatch: Stopwatch::new(config.encodes),
            lives: config.survival.map(Lives::new),
            config,
        };
        for _ in 0..world.config.masters {
            world.start_master();
        }
        world.timeline.plan(TICK, Event::TickUser);
        world
    }

    /// The time since the beginning.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// What happened last, a line each.
    pub fn log(&self) -> impl Iterator<Item = &str> {
        self.watch.log()
    }

    /// When the job was running with all of its workers for the first time.
    pub fn first_running(&self) -> Option<Duration> {
        self.watch.first_running
    }

    /// Lets the next thing happen.
    ///
    /// # Errors
    ///
    /// When something holds no longer that always has to.
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
                // On hosts that have none: another job may have followed meanwhile, and have got its own.
                let there = self.masters.keys().filter(|id| self.is_of_job(**id));
                if there.count() < self.config.masters as usize {
                    self.start_master();
                }
            }
            Event::Fault(fault) => self.befall(fault),
            Event::GiveUp(worker) => self.give_up(worker),
            Event::Arrive(freight) => self.arrives(freight),
            Event::Save(worker, generation, cut) => self.saves(worker, generation, cut),
            Event::Show(worker, generation, epoch) => self.shows(worker, generation, epoch),
            Event::SayDisplaced => self.say_displaced(),
            Event::Sweep(of, epochs, below, present) => {
                if let Some(lives) = &mut self.lives {
                    lives.program(of).vault.keep(&epochs, below, present.0);
                }
            }
        }
        self.check_step()
    }

    /// Where a process is; nothing if it has ended.
    pub(crate) fn host(&self, node: Node) -> Option<Host> {
        match node {
            Node::Store => Some(Host(0)),
            Node::Scheduler | Node::User => Some(Host(1)),
            Node::Master(id) => self.masters.contains_key(&id).then(|| self.master_host(id)),
            Node::Worker(id) => self.workers.get(&id).map(|worker| worker.host),
        }
    }

    /// The submission that a process was started to lead.
    pub(crate) fn led_by(&self, master: u32) -> u64 {
        self.led.get(&master).copied().unwrap_or_default()
    }

    /// Whether that is the job, and not one that it has followed.
    pub(crate) fn is_of_job(&self, master: u32) -> bool {
        self.led_by(master) == self.job.submission
    }

    pub(crate) fn master_host(&self, id: u32) -> Host {
        Host(2 + id % self.config.masters)
    }

    /// The hosts that containers run on.
    pub(crate) fn worker_hosts(&self) -> impl Iterator<Item = Host> + use<> {
        let first = 2 + self.config.masters;
        (first..first + self.config.hosts).map(Host)
    }

    /// Sends a message; the network decides what becomes of it.
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

    pub(crate) fn do_deeds(&mut self, deeds: Vec<Deed>) {
        for deed in deeds {
            match deed {
                Deed::Start(worker) => {
                    let after = Duration::from_millis(50)..Duration::from_millis(400);
                    let at = self.now + self.random.time(after.start, after.end);
                    self.timeline.plan(at, Event::Start(worker));
                }
                Deed::Stop(worker) => self.stop_worker(worker),
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
            told: BTreeMap::new(),
            given_up: BTreeSet::new(),
        };
        self.masters.insert(id, process);
        self.timeline.plan(self.now, Event::TickMaster(id));
    }
}
