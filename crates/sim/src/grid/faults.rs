//! The faults of the grid simulation, and their repair.

use std::time::Duration;

use super::simulation::{GridSimulation, SimulationEvent};
use crate::network::{Host, NetworkConditions};
use crate::random::Random;
use ardea_grid::protocol::NodeEvent;

/// A fault or its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A member dies, with or without proof, and is replaced or not.
    Kill { proven: bool, comes: bool },
    /// All members of a host die.
    KillHost,
    /// A member is halted for this duration.
    Halt(Duration),
    /// Another member joins.
    Come,
    /// A member is requested to leave.
    Leave,
    /// A host has no connection for this duration.
    Cut(Duration),
    /// The host is connected again.
    Joined(Host),
    /// A host can send but not receive for this duration.
    Deaf(Duration),
    /// The host receives again.
    Hears(Host),
    /// Two hosts are disconnected, in one or both directions, for this duration.
    Rift(Duration),
    /// The two hosts are connected again.
    Bridged(Host, Host),
    /// The hosts are partitioned for this duration.
    Island(Duration),
    /// The partition ends.
    Whole,
    /// Messages are delayed, lost and duplicated for this duration.
    Storm(Duration),
    /// The network is reliable again.
    Calm,
    /// All faults end.
    Mend,
}

/// Plans `count` random faults, spread over the time until `until`, followed by their repair.
pub fn plan(scene: &mut GridSimulation, count: u64, until: Duration) {
    let mut random = Random::new(scene.random.any());
    for _ in 0..count {
        let long = random.time(Duration::from_millis(50), Duration::from_secs(4));
        let trouble = match random.below(22) {
            0..=5 => Fault::Kill {
                proven: random.per_mille(500),
                comes: random.per_mille(700),
            },
            6 => Fault::KillHost,
            7..=8 => Fault::Halt(long),
            9..=10 => Fault::Come,
            11 => Fault::Leave,
            12 => Fault::Cut(long),
            13 => Fault::Deaf(long),
            14..=15 => Fault::Island(long),
            16..=17 => Fault::Rift(long * 2),
            _ => Fault::Storm(long),
        };
        let at = random.time(Duration::from_secs(1), until);
        scene.timeline.plan(at, SimulationEvent::Trouble(trouble));
    }
    scene
        .timeline
        .plan(until, SimulationEvent::Trouble(Fault::Mend));
}

impl GridSimulation {
    pub fn inject(&mut self, trouble: Fault) {
        if self.is_mended {
            return;
        }
        self.remember(format!("trouble: {trouble:?}"));
        let lives: Vec<u64> = self.lives.keys().copied().collect();
        let one = self.random.pick(&lives);
        let host = Host(self.random.below(u64::from(self.hosts)) as u32);
        match trouble {
            Fault::Kill { proven, comes } => {
                if let Some(life) = one {
                    self.kill(life, proven);
                    if comes {
                        self.after(50, 3_000, SimulationEvent::Start(host));
                    }
                }
            }
            Fault::KillHost => self.kill_host(host),
            Fault::Halt(long) => {
                let until = self.now + long;
                if let Some(life) = one.and_then(|id| self.lives.get_mut(&id)) {
                    life.halted = life.halted.max(until);
                }
            }
            Fault::Come => self.after(0, 100, SimulationEvent::Start(host)),
            Fault::Leave => self.leaves(one),
            Fault::Cut(long) => {
                self.network.cut.insert(host);
                self.timeline.plan(
                    self.now + long,
                    SimulationEvent::Trouble(Fault::Joined(host)),
                );
            }
            Fault::Joined(host) => drop(self.network.cut.remove(&host)),
            Fault::Deaf(long) => {
                self.network.receive_blocked.insert(host);
                self.timeline.plan(
                    self.now + long,
                    SimulationEvent::Trouble(Fault::Hears(host)),
                );
            }
            Fault::Hears(host) => drop(self.network.receive_blocked.remove(&host)),
            Fault::Rift(long) => self.disconnect(host, long),
            Fault::Bridged(one, other) => {
                self.network.broken_links.remove(&(one, other));
                self.network.broken_links.remove(&(other, one));
            }
            Fault::Island(long) => self.divide(long),
            Fault::Whole => self.network.island.clear(),
            Fault::Storm(long) => {
                self.network.conditions = NetworkConditions {
                    delay: Duration::from_millis(5 + self.random.below(60)),
                    lost: self.random.below(200),
                    doubled: self.random.below(200),
                    late: self.random.below(50),
                };
                self.timeline
                    .plan(self.now + long, SimulationEvent::Trouble(Fault::Calm));
            }
            Fault::Calm => self.network.conditions = NetworkConditions::FAIR,
            Fault::Mend => self.mend(),
        }
    }

    /// Disconnects `host` from another host, in one or both directions.
    fn disconnect(&mut self, host: Host, long: Duration) {
        let other = Host(self.random.below(u64::from(self.hosts)) as u32);
        self.network.broken_links.insert((host, other));
        if self.random.per_mille(700) {
            self.network.broken_links.insert((other, host));
        }
        let bridged = Fault::Bridged(host, other);
        self.timeline
            .plan(self.now + long, SimulationEvent::Trouble(bridged));
    }

    fn divide(&mut self, long: Duration) {
        let some: Vec<Host> = (0..self.hosts)
            .map(Host)
            .filter(|_| self.random.per_mille(500))
            .collect();
        self.network.island = some.into_iter().collect();
        self.timeline
            .plan(self.now + long, SimulationEvent::Trouble(Fault::Whole));
    }

    fn kill_host(&mut self, host: Host) {
        let lives = self.lives.iter();
        let there = lives.filter(|(_, life)| life.host == host);
        let there: Vec<u64> = there.map(|(id, _)| *id).collect();
        // New members could not join if all were gone.
        if there.len() < self.lives.len() {
            for life in there {
                self.kill(life, false);
                self.after(50, 3_000, SimulationEvent::Start(host));
            }
        }
    }

    fn leaves(&mut self, one: Option<u64>) {
        if let Some(id) = one.filter(|_| self.lives.len() > 1) {
            self.remember(format!("{id} is to go"));
            if let Some(life) = self.lives.get_mut(&id) {
                life.leaves = true;
            }
            self.happens_at(id, NodeEvent::Leave);
        }
    }

    fn kill(&mut self, life: u64, proven: bool) {
        // A stuck grid shows nothing more, so it is rarely caused.
        let is_last = self.lives.len() <= 1;
        if is_last || (self.is_stuck_without(life) && !self.random.per_mille(100)) {
            return;
        }
        self.remember(format!("{life} dies"));
        self.ends(life);
        if proven {
            self.after(0, 300, SimulationEvent::Proof(life));
        }
    }

    fn mend(&mut self) {
        self.is_mended = true;
        self.network.cut.clear();
        self.network.receive_blocked.clear();
        self.network.island.clear();
        self.network.broken_links.clear();
        self.network.conditions = NetworkConditions::FAIR;
        let now = self.now;
        self.lives
            .values_mut()
            .for_each(|life| life.halted = life.halted.min(now));
        // The operator reports the dead members.
        for life in self.dead.clone() {
            self.timeline.plan(now, SimulationEvent::Proof(life));
        }
    }
}
