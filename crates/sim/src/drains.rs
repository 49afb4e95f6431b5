//! Drained hosts, the containers that must leave them, and a scheduler without room.

use std::time::Duration;

use ardea_coordination::control::{CandidateEvent, ContainersToMove, MasterEvent};

use crate::faults::Fault;
use crate::network::{Host, Node};
use crate::random::Random;
use crate::simulation::ClusterSimulation;

/// The interval at which the scheduler reports containers that must leave their hosts.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Plans drains of hosts at random times in some worlds, and the end of some drains. Only a
/// scheduler that manages hosts can report them.
pub fn plan(sim: &mut ClusterSimulation, drawn: u64, until: Duration) {
    let mut room = Random::new(!drawn);
    if room.per_mille(250) {
        let at = room.time(Duration::ZERO, until);
        sim.plan(at, |sim| sim.inject(Fault::Full));
    }
    let mut random = Random::new(drawn);
    let hosts: Vec<Host> = sim.worker_hosts().collect();
    if hosts.len() < 2 || !sim.config.stateful || !random.per_mille(400) {
        return;
    }
    sim.plan(REPORT_INTERVAL, ClusterSimulation::say_displaced);
    for _ in 0..=random.below(3) {
        let Some(host) = random.pick(&hosts) else {
            continue;
        };
        let at = random.time(Duration::ZERO, until);
        sim.plan(at, move |sim| sim.inject(Fault::Drain(host)));
        if random.per_mille(400) {
            let back = random.time(at, until);
            sim.repair_in(back, move |sim| {
                sim.drained.retain(|drained| *drained != host)
            });
        }
        if random.per_mille(300) {
            let after = random.time(Duration::ZERO, Duration::from_secs(3));
            let at = (at + after).min(until);
            sim.plan(at, |sim| sim.inject(Fault::KillMaster));
        }
    }
}

impl ClusterSimulation {
    /// Leaves room only for containers that have been started before, if the job has started.
    pub fn fill(&mut self) {
        let record = self.metastore.record.value.as_ref();
        let has_started = record.is_some_and(|(record, _)| record.started);
        self.cluster.full |= has_started;
    }

    /// Sends the leaders of the job the containers that must leave their hosts.
    pub fn say_displaced(&mut self) {
        self.plan_in(REPORT_INTERVAL, ClusterSimulation::say_displaced);
        if self.drained.is_empty() || self.cluster.down {
            return;
        }
        let is_full = self.cluster.full || self.are_all_drained();
        let current: Vec<_> = self.cluster.current().collect();
        let mut displaced = Vec::new();
        for worker in current {
            // Unreachable hosts are unknown to the scheduler.
            let host = self.host(Node::Worker(worker));
            let host = host.filter(|host| self.network.connects(Host(1), *host));
            if let Some(host) = host.filter(|host| self.drained.contains(host)) {
                let is_stuck = is_full || self.random.per_mille(100);
                displaced.push(ContainersToMove {
                    container: worker.container,
                    host: host.0.to_string(),
                    stuck: is_stuck.then(|| "there is no room".to_string()),
                });
            }
        }
        let masters: Vec<_> = self.acting_masters().collect();
        for master in masters {
            let event = CandidateEvent::Master(MasterEvent::Displaced(displaced.clone()));
            self.send_to_master(Node::Scheduler, master, event);
        }
    }

    fn are_all_drained(&self) -> bool {
        let mut hosts = self.worker_hosts();
        hosts.all(|host| self.drained.contains(&host))
    }

    /// Returns a worker that is still on a drained host, unless there is no other host with room.
    pub fn missing_of_drains(&self) -> Option<String> {
        if self.cluster.full || self.are_all_drained() {
            return None;
        }
        let mut workers = self.workers.iter();
        let there = workers.find(|(_, worker)| self.drained.contains(&worker.host));
        there.map(|(id, worker)| format!("worker {id} is on {:?}, which is drained", worker.host))
    }
}
