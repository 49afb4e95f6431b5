//! The faults of the simulated cluster, and their repair.

use std::time::Duration;

use ardea_coordination::control::WorkerId;

use crate::network::{Host, NetworkConditions, Node};
use crate::random::Random;
use crate::simulation::ClusterSimulation;

/// A fault.
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
}

/// The maximum delay of a message between overloaded machines.
const SLOW: Duration = Duration::from_millis(250);

/// Plans `count` random faults, spread over the time until `until`, followed by their repair.
pub fn plan(sim: &mut ClusterSimulation, count: u64, until: Duration) {
    let mut random = Random::new(sim.random.any());
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
        sim.plan(at, move |sim| sim.inject(fault));
    }
    if sim.has_guarantee() {
        plan_for_lives(sim, &mut random, until);
    }
    sim.plan(until, ClusterSimulation::mend);
}

/// Plans the faults that only affect a job with a guarantee.
fn plan_for_lives(sim: &mut ClusterSimulation, random: &mut Random, until: Duration) {
    for _ in 0..random.below(6) {
        let long = random.time(Duration::from_millis(100), Duration::from_secs(6));
        let fault = match random.below(6) {
            0..=2 => Fault::FailInstance,
            3 => Fault::Damage(long),
            _ => Fault::DiskFull(long),
        };
        let at = random.time(Duration::ZERO, until);
        sim.plan(at, move |sim| sim.inject(fault));
    }
}

/// Plans `count` broken connections between overloaded machines, once the job runs.
pub fn plan_resets(sim: &mut ClusterSimulation, count: u64, until: Duration) {
    let mut random = Random::new(sim.random.any());
    let begin = Duration::from_secs(10);
    let slow = Fault::Slow(until.saturating_sub(begin));
    sim.plan(begin, move |sim| sim.inject(slow));
    for _ in 0..count {
        let at = random.time(begin, until);
        sim.plan(at, |sim| sim.inject(Fault::Reset));
    }
    sim.plan(until, ClusterSimulation::mend);
}

impl ClusterSimulation {
    pub fn inject(&mut self, fault: Fault) {
        self.remember(format!("fault: {fault:?}"));
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
                    self.repair_in(long, move |sim| sim.network.cut.retain(|cut| *cut != host));
                }
                self.plan_giving_up();
            }
            Fault::Split(long) => {
                let hosts = (0..self.host_count()).map(Host);
                let random = &mut self.world.random;
                self.world.network.island = hosts.filter(|_| random.per_mille(500)).collect();
                self.repair_in(long, |sim| sim.network.island.clear());
                self.plan_giving_up();
            }
            Fault::StoreDown(long) => {
                self.metastore.down = true;
                self.repair_in(long, |sim| sim.metastore.down = false);
            }
            Fault::SchedulerDown(long) => {
                self.cluster.down = true;
                self.repair_in(long, |sim| sim.cluster.down = false);
            }
            Fault::Storm(long) => self.storm(long),
            Fault::FailInstance => {
                if let Some(worker) = self.any_worker() {
                    self.fail_instance(worker);
                }
            }
            Fault::Damage(long) => {
                self.is_damaged = true;
                self.repair_in(long, |sim| sim.is_damaged = false);
            }
            Fault::DiskFull(long) => {
                self.is_full = true;
                self.repair_in(long, |sim| sim.is_full = false);
            }
            Fault::Slow(long) => {
                self.network.conditions.delay = SLOW;
                self.repair_in(long, |sim| sim.network.conditions = NetworkConditions::FAIR);
            }
            Fault::Reset => self.break_connection(),
            Fault::Drain(host) => drop(self.drained.insert(host)),
            Fault::Full => self.fill(),
        }
        self.stop_leftovers();
    }

    /// Plans the end of a fault.
    pub fn repair_in(&mut self, long: Duration, repair: impl FnOnce(&mut Self) + 'static) {
        self.plan_in(long, |sim| {
            repair(sim);
            sim.stop_leftovers();
        });
    }

    fn any_worker(&mut self) -> Option<WorkerId> {
        let workers: Vec<_> = self.workers.keys().copied().collect();
        self.random.pick(&workers)
    }

    /// Ends all faults.
    fn mend(&mut self) {
        self.repair_all();
        self.metastore.down = false;
        self.cluster.down = false;
        self.attempts.repaired_with = self.epochs_record().and_then(|record| record.committed);
        self.stop_leftovers();
    }

    /// Breaks a connection; both ends are notified after separate delays.
    fn break_connection(&mut self) {
        let workers: Vec<_> = self.workers.keys().copied().collect();
        let masters: Vec<_> = self.acting_masters().collect();
        let Some((worker, master)) = self.random.pick(&workers).zip(self.random.pick(&masters))
        else {
            return;
        };
        if let Some(host) = self.host(Node::Worker(worker)) {
            self.close_at_master(host, worker, master);
        }
        self.close_at_worker(self.master_host(master), worker);
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
                self.close_at_worker(host, worker);
            }
        }
        self.after(500, 10_000, ClusterSimulation::restart_master);
    }

    /// Plans the reaction of a framework with automatic restarts, which gives up on unreachable
    /// hosts.
    fn plan_giving_up(&mut self) {
        let workers: Vec<_> = self.workers.keys().copied().collect();
        for worker in workers {
            self.plan_in(Duration::from_secs(8), move |sim| sim.give_up(worker));
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
