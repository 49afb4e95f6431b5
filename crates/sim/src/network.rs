//! The simulated network: hosts that can be cut off, and messages that are delayed, lost and doubled.

use std::collections::BTreeSet;
use std::time::Duration;

use ardea_coordination::control::WorkerId;

use crate::random::Random;

/// A process that messages are sent to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Node {
    /// The state manager.
    Store,
    /// The scheduler's service.
    Scheduler,
    /// The person who sends commands.
    User,
    /// A process that may be master; each life is another.
    Master(u32),
    /// A worker's process.
    Worker(WorkerId),
}

/// A machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Host(pub u32);

/// How bad the network is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weather {
    /// The longest delay of most messages.
    pub delay: Duration,
    /// So many of a thousand messages are lost.
    pub lost: u64,
    /// So many of a thousand messages come twice.
    pub doubled: u64,
    /// So many of a thousand messages take up to a hundred times as long.
    pub late: u64,
}

impl Weather {
    /// As in a data centre on a good day.
    pub const FAIR: Weather = Weather {
        delay: Duration::from_millis(2),
        lost: 0,
        doubled: 0,
        late: 0,
    };
}

/// The state of the network.
#[derive(Debug)]
pub struct Network {
    /// How bad it is now.
    pub weather: Weather,
    /// Hosts that reach nobody.
    pub cut: BTreeSet<Host>,
    /// Hosts that nobody reaches, though they reach others.
    pub deaf: BTreeSet<Host>,
    /// Hosts that reach each other only.
    pub island: BTreeSet<Host>,
    /// Nothing goes from the first host to the second.
    pub rifts: BTreeSet<(Host, Host)>,
}

impl Network {
    /// Everybody reaches everybody.
    pub fn new() -> Self {
        Network {
            weather: Weather::FAIR,
            cut: BTreeSet::new(),
            deaf: BTreeSet::new(),
            island: BTreeSet::new(),
            rifts: BTreeSet::new(),
        }
    }

    /// Whether messages pass from one host to another.
    pub fn connects(&self, a: Host, b: Host) -> bool {
        a == b
            || (!self.cut.contains(&a)
                && !self.cut.contains(&b)
                && !self.deaf.contains(&b)
                && !self.rifts.contains(&(a, b))
                && self.island.contains(&a) == self.island.contains(&b))
    }

    /// After which times a message that is sent now arrives: none, one or two.
    pub fn arrivals(&self, random: &mut Random) -> Vec<Duration> {
        let Weather {
            delay,
            lost,
            doubled,
            late,
        } = self.weather;
        if random.per_mille(lost) {
            return Vec::new();
        }
        let copies = 1 + usize::from(random.per_mille(doubled));
        (0..copies)
            .map(|_| {
                let longest = match random.per_mille(late) {
                    true => delay * 100,
                    false => delay,
                };
                random.time(delay / 20, longest)
            })
            .collect()
    }
}

impl Default for Network {
    fn default() -> Self {
        Network::new()
    }
}
