//! The simulated network: partitions between hosts, and messages that are delayed, lost and
//! duplicated.

use std::collections::BTreeSet;
use std::time::Duration;

use ardea_coordination::control::WorkerId;

use crate::random::Random;

/// A process that receives messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Node {
    /// The metadata store.
    Store,
    /// The scheduler's service.
    Scheduler,
    /// The user who sends commands.
    User,
    /// A process that may be the job's leader; each restart is another node.
    Master(u32),
    /// A worker's process.
    Worker(WorkerId),
}

/// A machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Host(pub u32);

/// The quality of the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkConditions {
    /// The maximum delay of most messages.
    pub delay: Duration,
    /// The number of lost messages per thousand.
    pub lost: u64,
    /// The number of duplicated messages per thousand.
    pub doubled: u64,
    /// The number of messages per thousand that take up to a hundred times as long.
    pub late: u64,
}

impl NetworkConditions {
    /// The conditions of a healthy data centre.
    pub const FAIR: NetworkConditions = NetworkConditions {
        delay: Duration::from_millis(2),
        lost: 0,
        doubled: 0,
        late: 0,
    };
}

impl Default for NetworkConditions {
    fn default() -> Self {
        NetworkConditions::FAIR
    }
}

/// The state of the network. By default all hosts are connected.
#[derive(Debug, Default)]
pub struct Network {
    /// The current conditions.
    pub conditions: NetworkConditions,
    /// Hosts without any connection.
    pub cut: BTreeSet<Host>,
    /// Hosts that can send but not receive.
    pub receive_blocked: BTreeSet<Host>,
    /// Hosts that are only connected to each other.
    pub island: BTreeSet<Host>,
    /// Pairs of hosts of which the first cannot reach the second.
    pub broken_links: BTreeSet<(Host, Host)>,
}

impl Network {
    /// Returns true if messages from host `a` reach host `b`.
    pub fn connects(&self, a: Host, b: Host) -> bool {
        a == b
            || (!self.cut.contains(&a)
                && !self.cut.contains(&b)
                && !self.receive_blocked.contains(&b)
                && !self.broken_links.contains(&(a, b))
                && self.island.contains(&a) == self.island.contains(&b))
    }

    /// Returns the delays of the copies of a message: none, one or two.
    pub fn arrivals(&self, random: &mut Random) -> Vec<Duration> {
        let NetworkConditions {
            delay,
            lost,
            doubled,
            late,
        } = self.conditions;
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
