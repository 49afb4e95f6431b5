//! The faults of the simulated cluster, and their repair.

use std::time::Duration;

use ardea_coordination::control::WorkerId;

use crate::network::{Host, NetworkConditions, Node};
use crate::random::Random;
use crate::simulation::{Event, Message, World};

/// A fault or its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A worker's process dies.
    KillWorker,
    /// The master's process dies, and another is started later.
    KillMaster,
    /// A host has no connection for this duration.
    CutHost(Duration),
    /// The hosts are partitioned into two groups for this duration.
    Split(Duration),
    /// The metadata store does not answer for this duration.
    StoreDown(Duration),
    /// The scheduler executes no calls for this duration.
    SchedulerDown(Duration),
    /// Messages are lost, duplicated and delayed for this duration.
    Storm(Duration),
    /// An instance of a job with a guarantee fails.
    FailInstance,
    /// Checkpoints cannot be read for this duration.
    Damage(Duration),
    /// Checkpoints cannot be written for this duration.
    DiskFull(Duration),
    /// All messages take longer, as on overloaded machines, for this duration.
    Slow(Duration),
    /// The connection between a worker and its master breaks.
    Reset,
    /// A host is drained.
    Drain(Host),
    /// The scheduler has no room for new containers from now on.
    Full,
    /// One of these faults ends.
    Over(Repair),
    /// All faults end.
    Mend,
}

/// The end of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repair {
    /// The network is reliable again.
    Calm,
    /// A host is connected again.
    HostBack(Host),
    /// The partition ends.
    Joined,
    /// The metadata store is available again.
    StoreBack,
    /// The scheduler is available again.
    SchedulerBack,
    /// A host is no longer drained.
    Undrained(Host),
    /// Checkpoints can be read again.
    Readable,
    /// There is space again.
    Room,
}

/// The maximum delay of a message between overloaded machines.
const SLOW: Duration = Duration::from_millis(250);

/// Plans `count` random faults, spread over the time until `until`, followed by their repair.
pub(crate) fn plan(world: &mut World, count: u64, until: Duration) {
    let mut random = Random::new(world.random.any());
    for _ in 0..count {
        let long = random.time(Duration::from_millis(100), Duration::from_secs(15));
        let fault = match random.below(16) {
            0..=3 => Fault::KillWorker,
            4..=6 => Fault::KillMaster,
            7..=8 => Fault::CutHost(long),
            9 => Fault::Split(long),
            10..=11 => Fault::StoreDown(long),
            12 => Fault::SchedulerDown(long),
            _ => Fault::Storm(long),
        };
        let at = random.time(Duration::ZERO, until);
        world.timeline.plan(at, Event::Fault(fault));
    }
    if world.attempts.is_some() {
        plan_for_lives(world, &mut random, until);
    }
    world.timeline.plan(until, Event::Fault(Fault::Mend));
}

/// Plans the faults that only affect a job with a guarantee.
fn plan_for_lives(world: &mut World, random: &mut Random, until: Duration) {
    for _ in 0..random.below(6) {
        let long = random.time(Duration::from_millis(100), Duration::from_secs(6));
        let fault = match random.below(6) {
            0..=2 => Fault::FailInstance,
            3 => Fault::Damage(long),
            _ => Fault::DiskFull(long),
        };
        let at = random.time(Duration::ZERO, until);
        world.timeline.plan(at, Event::Fault(fault));
    }
}

/// Plans `count` broken connections between overloaded machines, once the job runs.
pub(crate) fn plan_resets(world: &mut World, count: u64, until: Duration) {
    let mut random = Random::new(world.random.any());
    let begin = Duration::from_secs(10);
    let mut plan = |at, fault| world.timeline.plan(at, Event::Fault(fault));
    plan(begin, Fault::Slow(until.saturating_sub(begin)));
    for _ in 0..count {
        plan(random.time(begin, until), Fault::Reset);
    }
    plan(until, Fault::Mend);
}

impl World {
    pub(crate) fn inject(&mut self, fault: Fault) {
        self.watch.fault(self.now, fault);
        match fault {
            Fault::KillWorker => {
                if let Some(worker) = self.any_worker() {
                    self.end_worker(worker);
                }
            }
            Fault::KillMaster => self.kill_master(),
            Fault::CutHost(long) => {
                let hosts: Vec<Host> = (0..self.host_count()).map(Host).collect();
                if let Some(host) = self.random.pick(&hosts) {
                    self.network.cut.insert(host);
                    self.plan_after(long, Repair::HostBack(host));
                }
                self.plan_giving_up();
            }
            Fault::Split(long) => {
                let hosts = (0..self.host_count()).map(Host);
                self.network.island = hosts.filter(|_| self.random.per_mille(500)).collect();
                self.plan_after(long, Repair::Joined);
                self.plan_giving_up();
            }
            Fault::StoreDown(long) => {
                self.metastore.down = true;
                self.plan_after(long, Repair::StoreBack);
            }
            Fault::SchedulerDown(long) => {
                self.cluster.down = true;
                self.plan_after(long, Repair::SchedulerBack);
            }
            Fault::Storm(long) => {
                self.network.conditions = NetworkConditions {
                    delay: self
                        .random
                        .time(Duration::from_millis(1), Duration::from_millis(50)),
                    lost: self.random.below(400),
                    doubled: self.random.below(300),
                    late: self.random.below(100),
                };
                self.plan_after(long, Repair::Calm);
            }
            Fault::FailInstance => {
                if let Some(worker) = self.any_worker() {
                    self.fail_instance(worker);
                }
            }
            Fault::Damage(long) => {
                self.set_storage_faults(Some(true), None);
                self.plan_after(long, Repair::Readable);
            }
            Fault::DiskFull(long) => {
                self.set_storage_faults(None, Some(true));
                self.plan_after(long, Repair::Room);
            }
            Fault::Slow(long) => {
                self.network.conditions = NetworkConditions {
                    delay: SLOW,
                    ..NetworkConditions::FAIR
                };
                self.plan_after(long, Repair::Calm);
            }
            Fault::Reset => self.break_connection(),
            Fault::Drain(host) => self.drain(host),
            Fault::Full => self.fill(),
            Fault::Over(relief) => self.repair(relief),
            Fault::Mend => self.repair_all(),
        }
        self.stop_leftovers();
    }

    fn any_worker(&mut self) -> Option<WorkerId> {
        let workers: Vec<_> = self.workers.keys().copied().collect();
        self.random.pick(&workers)
    }

    fn repair_all(&mut self) {
        self.network.conditions = NetworkConditions::FAIR;
        self.network.cut.clear();
        self.network.island.clear();
        self.metastore.down = false;
        self.cluster.down = false;
        self.set_storage_faults(Some(false), Some(false));
        self.note_mended();
    }

    fn repair(&mut self, relief: Repair) {
        match relief {
            Repair::Calm => self.network.conditions = NetworkConditions::FAIR,
            Repair::HostBack(host) => {
                self.network.cut.remove(&host);
            }
            Repair::Joined => self.network.island.clear(),
            Repair::StoreBack => self.metastore.down = false,
            Repair::SchedulerBack => self.cluster.down = false,
            Repair::Undrained(host) => {
                self.drained.remove(&host);
            }
            Repair::Readable => self.set_storage_faults(Some(false), None),
            Repair::Room => self.set_storage_faults(None, Some(false)),
        }
    }

    /// Breaks a connection; both ends are notified after separate delays.
    fn break_connection(&mut self) {
        let workers: Vec<_> = self.workers.keys().copied().collect();
        let masters: Vec<_> = self.acting_masters().collect();
        let Some((worker, master)) = self.random.pick(&workers).zip(self.random.pick(&masters))
        else {
            return;
        };
        let at_master = Message::WorkerClosed(worker);
        self.send(Node::Worker(worker), Node::Master(master), at_master);
        self.send(
            Node::Master(master),
            Node::Worker(worker),
            Message::MasterClosed,
        );
    }

    fn plan_after(&mut self, long: Duration, end: Repair) {
        let end = Event::Fault(Fault::Over(end));
        self.timeline.plan(self.now + long, end);
    }

    fn set_storage_faults(&mut self, is_damaged: Option<bool>, is_full: Option<bool>) {
        if let Some(lives) = &mut self.attempts {
            lives.is_damaged = is_damaged.unwrap_or(lives.is_damaged);
            lives.is_full = is_full.unwrap_or(lives.is_full);
        }
    }

    fn host_count(&self) -> u32 {
        2 + self.config.masters + self.config.hosts
    }

    fn kill_master(&mut self) {
        let acting: Vec<_> = self.acting_masters().collect();
        let all: Vec<_> = self.masters.keys().copied().collect();
        let Some(id) = self.random.pick(&acting).or_else(|| self.random.pick(&all)) else {
            return;
        };
        let host = self.master_host(id);
        self.masters.remove(&id);
        let workers: Vec<_> = self.workers.keys().copied().collect();
        for worker in workers {
            if self.random.per_mille(500) {
                self.send_from(host, Node::Worker(worker), Message::MasterClosed);
            }
        }
        let after = self
            .random
            .time(Duration::from_millis(500), Duration::from_secs(10));
        self.timeline.plan(self.now + after, Event::StartMaster);
    }

    /// Plans the reaction of a framework with automatic restarts, which gives up on unreachable
    /// hosts.
    fn plan_giving_up(&mut self) {
        let at = self.now + Duration::from_secs(8);
        for worker in self.workers.keys() {
            self.timeline.plan(at, Event::GiveUp(*worker));
        }
    }

    /// Stops processes whose host was unreachable before, if the scheduler is configured to do so.
    fn stop_leftovers(&mut self) {
        if self.config.stops_leftovers {
            let reachable: Vec<_> = self
                .leftovers
                .iter()
                .copied()
                .filter(|worker| {
                    let host = self.host(Node::Worker(*worker));
                    host.is_some_and(|host| self.network.connects(Host(1), host))
                })
                .collect();
            for worker in reachable {
                self.end_worker(worker);
            }
        }
    }
}
