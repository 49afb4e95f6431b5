//! A job on a simulated cluster: processes on hosts, and the messages between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    Candidate, Change, JobDefinition, JobRecord, JobRef, LeaseConfig, MasterConfig, MasterEpoch,
    Order, PlanVersion, SchedulerTraits, StoreRequest, WorkerAgent, WorkerId,
};
use ardea_coordination::packing::{
    ContainerId, InstanceId, JobDemand, PackingConfig, PackingPolicy,
};

use crate::attempts::{AttemptChecker, GuaranteeConfig, WorkerAttempt};
use crate::cluster::{Cluster, Operation};
use crate::invariants::InvariantChecker;
use crate::metastore::SimMetastore;
use crate::network::{Host, Node};
use crate::random::Random;
use crate::stopwatch::Stopwatch;
use crate::upgrades;
use crate::user::User;
use crate::world::{Simulation, SkewedClock, World, in_world};

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

/// A process that may be the leader.
#[derive(Debug)]
pub(crate) struct MasterProcess {
    pub candidate: Candidate,
    pub clock: SkewedClock,
    /// True if the job is gone, and the process removes the lease and exits.
    pub leaving: bool,
    /// The instances assigned to each worker by this leadership.
    pub assigned: BTreeMap<WorkerId, BTreeSet<InstanceId>>,
    /// The containers whose workers the master considers lost.
    pub aborted: BTreeSet<ContainerId>,
}

#[derive(Debug)]
pub struct WorkerProcess {
    /// The submission that the process was started for.
    pub of: u64,
    pub agent: WorkerAgent,
    pub clock: SkewedClock,
    pub host: Host,
    pub changes: VecDeque<Change>,
    /// The worker's part of the execution attempt, in a job with a guarantee.
    pub part: Option<WorkerAttempt>,
    /// The instances that actually run.
    pub running: BTreeSet<InstanceId>,
    pub busy_until: Duration,
    /// The running instances that have completed.
    pub ended: BTreeSet<InstanceId>,
    /// The last change that was carried out.
    pub applied: Option<Order>,
    /// The newest master epoch that the worker has received.
    pub heard_of: MasterEpoch,
    /// The newest plan that the worker has routed by.
    pub routes: Option<PlanVersion>,
}

/// A job on a simulated cluster.
pub struct ClusterSimulation {
    pub world: World<ClusterSimulation>,
    pub config: WorldConfig,
    /// The job, or the last one that has replaced it.
    pub job: JobRef,
    pub definition: JobDefinition,
    pub metastore: SimMetastore,
    pub cluster: Cluster,
    pub masters: BTreeMap<u32, MasterProcess>,
    masters_started: u32,
    /// The submission of each process. Messages of processes that have ended may still be in
    /// transit.
    led: BTreeMap<u32, u64>,
    pub workers: BTreeMap<WorkerId, WorkerProcess>,
    /// Processes to be stopped when their host is reachable.
    pub leftovers: BTreeSet<WorkerId>,
    pub drained: BTreeSet<Host>,
    pub user: User,
    pub watch: InvariantChecker,
    pub stopwatch: Stopwatch,
    /// The observations of a job with a guarantee.
    pub attempts: AttemptChecker,
}

in_world!(ClusterSimulation);

impl Simulation for ClusterSimulation {
    const CHECK_INTERVAL: Duration = Duration::from_millis(250);

    fn check(&mut self) {
        self.check_leaders();
    }

    fn missing(&mut self) -> Option<String> {
        self.unrecovered()
    }
}

impl ClusterSimulation {
    /// Creates a cluster on which the job has just been submitted.
    pub fn new(config: WorldConfig, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let job = JobRef {
            cluster: "sim".to_string(),
            name: config.demand.job.clone(),
            submission: random.any(),
        };
        let demand = config.demand.clone();
        let record = JobRecord::submitted(job.clone(), demand, config.packing.clone());
        let mut metastore = SimMetastore::default();
        let submitted = StoreRequest::Write {
            value: Arc::new(record),
            expected: None,
        };
        let mut world = World::new(random);
        world.checked(metastore.record(submitted));
        let mut sim = ClusterSimulation {
            world,
            cluster: Cluster::new(config.stateful),
            definition: upgrades::definition(&job),
            job,
            metastore,
            masters: BTreeMap::new(),
            masters_started: 0,
            led: BTreeMap::new(),
            workers: BTreeMap::new(),
            leftovers: BTreeSet::new(),
            drained: BTreeSet::new(),
            user: User::default(),
            watch: InvariantChecker::default(),
            stopwatch: Stopwatch::new(config.encodes),
            attempts: AttemptChecker::default(),
            config,
        };
        for _ in 0..sim.config.masters {
            sim.start_master();
        }
        sim.plan(TICK, ClusterSimulation::tick_user);
        sim
    }

    /// Returns true if the job has a guarantee, and so execution attempts.
    pub fn has_guarantee(&self) -> bool {
        self.config.survival.is_some()
    }

    /// Returns the host of a process, or `None` if it has ended.
    pub fn host(&self, node: Node) -> Option<Host> {
        match node {
            Node::Store => Some(Host(0)),
            Node::Scheduler | Node::User => Some(Host(1)),
            Node::Master(id) => self.masters.contains_key(&id).then(|| self.master_host(id)),
            Node::Worker(id) => self.workers.get(&id).map(|worker| worker.host),
        }
    }

    /// Returns the submission that a worker was started for, or the current one if it has ended.
    pub fn submission_of(&self, worker: WorkerId) -> u64 {
        let worker = self.workers.get(&worker);
        worker.map_or(self.job.submission, |worker| worker.of)
    }

    /// Returns the submission that a process was started to lead.
    pub fn led_by(&self, master: u32) -> u64 {
        self.led.get(&master).copied().unwrap_or_default()
    }

    /// Returns true if a process belongs to the current job and not to a predecessor.
    pub fn is_of_job(&self, master: u32) -> bool {
        self.led_by(master) == self.job.submission
    }

    pub fn master_host(&self, id: u32) -> Host {
        Host(2 + id % self.config.masters)
    }

    /// Returns the hosts for containers.
    pub fn worker_hosts(&self) -> impl Iterator<Item = Host> + use<> {
        let first = 2 + self.config.masters;
        (first..first + self.config.hosts).map(Host)
    }

    /// Sends a message over the simulated network; `arrival` handles it at the receiver.
    pub fn send(
        &mut self,
        from: Node,
        to: Node,
        arrival: impl FnOnce(&mut Self) + Clone + 'static,
    ) {
        if let Some(from) = self.host(from) {
            self.send_from(from, to, arrival);
        }
    }

    pub fn send_from(
        &mut self,
        from: Host,
        to: Node,
        arrival: impl FnOnce(&mut Self) + Clone + 'static,
    ) {
        self.transmit(move |sim| {
            let host = sim.host(to);
            if host.is_some_and(|host| sim.network.connects(from, host)) {
                arrival(sim);
            }
        });
    }

    pub fn do_deeds(&mut self, deeds: Vec<Operation>) {
        for deed in deeds {
            match deed {
                Operation::Start(worker) => {
                    self.after(50, 400, move |sim| sim.start_worker(worker));
                }
                Operation::Stop(worker) => self.stop_worker(worker),
            }
        }
    }

    /// Starts a process on a host without a process of this job. Another job may have replaced this
    /// one and have got its own processes.
    pub fn restart_master(&mut self) {
        let there = self.masters.keys().filter(|id| self.is_of_job(**id));
        if there.count() < self.config.masters as usize {
            self.start_master();
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
            clock: self.skewed_clock(most),
            leaving: false,
            assigned: BTreeMap::new(),
            aborted: BTreeSet::new(),
        };
        self.masters.insert(id, process);
        self.plan_in(Duration::ZERO, move |sim| sim.tick_master(id));
    }
}
