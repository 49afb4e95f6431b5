//! What befalls a simulated grid, and how it is mended.

use std::time::Duration;

use super::scene::{Happening, Scene};
use crate::network::{Host, Weather};
use crate::random::Random;
use ardea_grid::protocol::NodeEvent;

/// Something that befalls the grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// A member dies; it is proven, or not. Another comes, or not.
    Kill { proven: bool, comes: bool },
    /// All members of a host die.
    KillHost,
    /// A member does nothing for so long.
    Halt(Duration),
    /// Another member comes.
    Come,
    /// A member is to go.
    Leave,
    /// A host reaches nobody, for so long.
    Cut(Duration),
    /// It can be reached again.
    Joined(Host),
    /// A host hears nobody, though others hear it, for so long.
    Deaf(Duration),
    /// It hears again.
    Hears(Host),
    /// Two hosts don't hear each other, or one doesn't hear the other, for so long.
    Rift(Duration),
    /// They do.
    Bridged(Host, Host),
    /// The hosts are divided, for so long.
    Island(Duration),
    /// They aren't.
    Whole,
    /// Messages are late, lost and doubled, for so long.
    Storm(Duration),
    /// The network can be relied on.
    Calm,
    /// All of that ends.
    Mend,
}

/// So many troubles, spread over that time; at its end all is mended.
pub fn plan(scene: &mut Scene, count: u64, until: Duration) {
    let mut random = Random::new(scene.random.any());
    for _ in 0..count {
        let long = random.time(Duration::from_millis(50), Duration::from_secs(4));
        let trouble = match random.below(22) {
            0..=5 => Trouble::Kill {
                proven: random.per_mille(500),
                comes: random.per_mille(700),
            },
            6 => Trouble::KillHost,
            7..=8 => Trouble::Halt(long),
            9..=10 => Trouble::Come,
            11 => Trouble::Leave,
            12 => Trouble::Cut(long),
            13 => Trouble::Deaf(long),
            14..=15 => Trouble::Island(long),
            16..=17 => Trouble::Rift(long * 2),
            _ => Trouble::Storm(long),
        };
        let at = random.time(Duration::from_secs(1), until);
        scene.timeline.plan(at, Happening::Trouble(trouble));
    }
    scene
        .timeline
        .plan(until, Happening::Trouble(Trouble::Mend));
}

impl Scene {
    pub fn befall(&mut self, trouble: Trouble) {
        if self.is_mended {
            return;
        }
        self.remember(format!("trouble: {trouble:?}"));
        let lives: Vec<u64> = self.lives.keys().copied().collect();
        let one = self.random.pick(&lives);
        let host = Host(self.random.below(u64::from(self.hosts)) as u32);
        match trouble {
            Trouble::Kill { proven, comes } => {
                if let Some(life) = one {
                    self.kill(life, proven);
                    if comes {
                        self.after(50, 3_000, Happening::Start(host));
                    }
                }
            }
            Trouble::KillHost => self.kill_host(host),
            Trouble::Halt(long) => {
                let until = self.now + long;
                if let Some(life) = one.and_then(|id| self.lives.get_mut(&id)) {
                    life.halted = life.halted.max(until);
                }
            }
            Trouble::Come => self.after(0, 100, Happening::Start(host)),
            Trouble::Leave => self.leaves(one),
            Trouble::Cut(long) => {
                self.network.cut.insert(host);
                self.timeline
                    .plan(self.now + long, Happening::Trouble(Trouble::Joined(host)));
            }
            Trouble::Joined(host) => drop(self.network.cut.remove(&host)),
            Trouble::Deaf(long) => {
                self.network.deaf.insert(host);
                self.timeline
                    .plan(self.now + long, Happening::Trouble(Trouble::Hears(host)));
            }
            Trouble::Hears(host) => drop(self.network.deaf.remove(&host)),
            Trouble::Rift(long) => self.tear(host, long),
            Trouble::Bridged(one, other) => {
                self.network.rifts.remove(&(one, other));
                self.network.rifts.remove(&(other, one));
            }
            Trouble::Island(long) => self.divide(long),
            Trouble::Whole => self.network.island.clear(),
            Trouble::Storm(long) => {
                self.network.weather = Weather {
                    delay: Duration::from_millis(5 + self.random.below(60)),
                    lost: self.random.below(200),
                    doubled: self.random.below(200),
                    late: self.random.below(50),
                };
                self.timeline
                    .plan(self.now + long, Happening::Trouble(Trouble::Calm));
            }
            Trouble::Calm => self.network.weather = Weather::FAIR,
            Trouble::Mend => self.mend(),
        }
    }

    /// This host and another one don't hear each other, or one doesn't hear the other.
    fn tear(&mut self, host: Host, long: Duration) {
        let other = Host(self.random.below(u64::from(self.hosts)) as u32);
        self.network.rifts.insert((host, other));
        if self.random.per_mille(700) {
            self.network.rifts.insert((other, host));
        }
        let bridged = Trouble::Bridged(host, other);
        self.timeline
            .plan(self.now + long, Happening::Trouble(bridged));
    }

    fn divide(&mut self, long: Duration) {
        let some: Vec<Host> = (0..self.hosts)
            .map(Host)
            .filter(|_| self.random.per_mille(500))
            .collect();
        self.network.island = some.into_iter().collect();
        self.timeline
            .plan(self.now + long, Happening::Trouble(Trouble::Whole));
    }

    fn kill_host(&mut self, host: Host) {
        let lives = self.lives.iter();
        let there = lives.filter(|(_, life)| life.host == host);
        let there: Vec<u64> = there.map(|(id, _)| *id).collect();
        // Those that come anew find nobody if all are gone.
        if there.len() < self.lives.len() {
            for life in there {
                self.kill(life, false);
                self.after(50, 3_000, Happening::Start(host));
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
        // What stands still for good shows nothing more: that is tried now and then only.
        let is_last = self.lives.len() <= 1;
        if is_last || (self.is_stuck_without(life) && !self.random.per_mille(100)) {
            return;
        }
        self.remember(format!("{life} dies"));
        self.ends(life);
        if proven {
            self.after(0, 300, Happening::Proof(life));
        }
    }

    fn mend(&mut self) {
        self.is_mended = true;
        self.network.cut.clear();
        self.network.deaf.clear();
        self.network.island.clear();
        self.network.rifts.clear();
        self.network.weather = Weather::FAIR;
        let now = self.now;
        self.lives
            .values_mut()
            .for_each(|life| life.halted = life.halted.min(now));
        // Whoever runs the grid says what is dead.
        for life in self.dead.clone() {
            self.timeline.plan(now, Happening::Proof(life));
        }
    }
}
