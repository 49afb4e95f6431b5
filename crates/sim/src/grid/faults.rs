//! The faults of the grid simulation, and their repair.

use std::time::Duration;

use super::simulation::GridSimulation;
use crate::network::{Host, Network, NetworkConditions};
use crate::random::Random;
use ardea_grid::protocol::NodeEvent;

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GridFault {
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
    /// A host can send but not receive for this duration.
    Deaf(Duration),
    /// Two hosts are disconnected, in one or both directions, for this duration.
    Rift(Duration),
    /// The hosts are partitioned for this duration.
    Island(Duration),
    /// Messages are delayed, lost and duplicated for this duration.
    Storm(Duration),
}

/// Plans `count` random faults, spread over the time until `until`, followed by their repair.
pub fn plan(sim: &mut GridSimulation, count: u64, until: Duration) {
    let mut random = Random::new(sim.random.any());
    for _ in 0..count {
        let long = random.time(Duration::from_millis(50), Duration::from_secs(4));
        let trouble = match random.below(22) {
            0..=5 => GridFault::Kill {
                proven: random.per_mille(500),
                comes: random.per_mille(700),
            },
            6 => GridFault::KillHost,
            7..=8 => GridFault::Halt(long),
            9..=10 => GridFault::Come,
            11 => GridFault::Leave,
            12 => GridFault::Cut(long),
            13 => GridFault::Deaf(long),
            14..=15 => GridFault::Island(long),
            16..=17 => GridFault::Rift(long * 2),
            _ => GridFault::Storm(long),
        };
        let at = random.time(Duration::from_secs(1), until);
        sim.plan(at, move |sim| sim.inject(trouble));
    }
    sim.plan(until, GridSimulation::mend);
}

impl GridSimulation {
    fn inject(&mut self, trouble: GridFault) {
        if self.is_mended {
            return;
        }
        self.remember(format!("trouble: {trouble:?}"));
        let (one, host) = self.pick_target();
        match trouble {
            GridFault::Kill { proven, comes } => {
                if let Some(life) = one {
                    self.kill(life, proven);
                    if comes {
                        self.after(50, 3_000, move |sim| sim.start(host));
                    }
                }
            }
            GridFault::KillHost => self.kill_host(host),
            GridFault::Halt(long) => {
                let until = self.now + long;
                if let Some(life) = one.and_then(|id| self.lives.get_mut(&id)) {
                    life.halted = life.halted.max(until);
                }
            }
            GridFault::Come => self.after(0, 100, move |sim| sim.start(host)),
            GridFault::Leave => self.leaves(one),
            GridFault::Cut(long) => {
                self.network.cut.insert(host);
                self.repair_in(long, move |network| network.cut.retain(|cut| *cut != host));
            }
            GridFault::Deaf(long) => {
                self.network.receive_blocked.insert(host);
                self.repair_in(long, move |network| {
                    network.receive_blocked.retain(|deaf| *deaf != host);
                });
            }
            GridFault::Rift(long) => self.disconnect(host, long),
            GridFault::Island(long) => {
                let some = (0..self.hosts).map(Host);
                let random = &mut self.world.random;
                self.world.network.island = some.filter(|_| random.per_mille(500)).collect();
                self.repair_in(long, |network| network.island.clear());
            }
            GridFault::Storm(long) => {
                self.network.conditions = NetworkConditions {
                    delay: Duration::from_millis(5 + self.random.below(60)),
                    lost: self.random.below(200),
                    doubled: self.random.below(200),
                    late: self.random.below(50),
                };
                self.repair_in(long, |network| network.conditions = NetworkConditions::FAIR);
            }
        }
    }

    fn pick_target(&mut self) -> (Option<u64>, Host) {
        let lives: Vec<u64> = self.lives.keys().copied().collect();
        (self.random.pick(&lives), self.any_host())
    }

    fn any_host(&mut self) -> Host {
        let hosts = u64::from(self.hosts);
        Host(self.random.below(hosts) as u32)
    }

    /// Plans the end of a fault. It draws as many random numbers as a fault, so that the outcome of
    /// known seeds does not change.
    fn repair_in(&mut self, long: Duration, repair: impl FnOnce(&mut Network) + 'static) {
        self.plan_in(long, move |sim| {
            if !sim.is_mended {
                sim.pick_target();
            }
            repair(&mut sim.network);
        });
    }

    /// Disconnects `host` from another host, in one or both directions.
    fn disconnect(&mut self, host: Host, long: Duration) {
        let other = self.any_host();
        self.network.broken_links.insert((host, other));
        if self.random.per_mille(700) {
            self.network.broken_links.insert((other, host));
        }
        self.repair_in(long, move |network| {
            let links = &mut network.broken_links;
            links.retain(|link| *link != (host, other) && *link != (other, host));
        });
    }

    fn kill_host(&mut self, host: Host) {
        let lives = self.lives.iter();
        let there = lives.filter(|(_, life)| life.host == host);
        let there: Vec<u64> = there.map(|(id, _)| *id).collect();
        // New members could not join if all were gone.
        if there.len() < self.lives.len() {
            for life in there {
                self.kill(life, false);
                self.after(50, 3_000, move |sim| sim.start(host));
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
            self.after(0, 300, move |sim| sim.prove(life));
        }
    }

    fn mend(&mut self) {
        self.pick_target();
        self.is_mended = true;
        self.repair_all();
        let now = self.now;
        self.lives
            .values_mut()
            .for_each(|life| life.halted = life.halted.min(now));
        // The operator reports the dead members.
        for life in self.dead.clone() {
            self.plan(now, move |sim| sim.prove(life));
        }
    }
}
