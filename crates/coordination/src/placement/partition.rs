//! An assignment of tasks to hosts, and its refinement by moves and swaps of tasks.

use std::cmp::Reverse;

use crate::placement::TrafficGraph;

/// The number of refinement passes; most graphs need fewer.
const PASSES: usize = 8;

/// The number of hosts that a swap of a task is tried with: those with the most traffic.
const SWAP_HOSTS: usize = 3;

/// The share of each host in the total load, and its maximum load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LoadLimits {
    pub(crate) shares: Vec<u64>,
    pub(crate) most: Vec<u64>,
}

impl LoadLimits {
    /// Divides the load of the tasks by the hosts' capacities. The maximum of a host is its share
    /// and `percent` of it, but at least its share rounded up to whole tasks of equal load.
    pub(crate) fn new(loads: &[u64], capacities: &[u64], percent: u32) -> Self {
        let total: u128 = loads.iter().map(|load| u128::from(*load)).sum();
        let capacity: u128 = capacities.iter().map(|of| u128::from(*of)).sum();
        let share = |of: &u64| (total * u128::from(*of)).div_ceil(capacity.max(1)) as u64;
        let shares: Vec<u64> = capacities.iter().map(share).collect();
        let unit = loads.iter().copied().fold(0, greatest_divisor).max(1);
        let most = shares.iter().map(|share| {
            let more = u128::from(*share) * (100 + u128::from(percent)) / 100;
            (more as u64).max(share.next_multiple_of(unit))
        });
        LoadLimits {
            most: most.collect(),
            shares,
        }
    }
}

fn greatest_divisor(one: u64, other: u64) -> u64 {
    match other {
        0 => one,
        _ => greatest_divisor(other, one % other),
    }
}

/// An assignment of a graph's tasks to hosts.
pub(crate) struct Partition<'a> {
    graph: &'a TrafficGraph,
    limits: &'a LoadLimits,
    hosts: Vec<usize>,
    loads: Vec<u64>,
    members: Vec<usize>,
    /// The traffic of each task with the tasks on each host, by task and host.
    toward: Vec<u64>,
}

impl<'a> Partition<'a> {
    /// Creates the partition in which `hosts` has the host of each task.
    pub(crate) fn new(
        graph: &'a TrafficGraph,
        limits: &'a LoadLimits,
        hosts: Vec<usize>,
    ) -> Partition<'a> {
        let count = limits.most.len();
        let (mut loads, mut members) = (vec![0; count], vec![0; count]);
        let mut toward = vec![0; count * graph.len()];
        for (task, host) in hosts.iter().copied().enumerate() {
            loads[host] += graph.load(task);
            members[host] += 1;
            for (other, rate) in graph.neighbours(task) {
                toward[task * count + hosts[*other]] += rate;
            }
        }
        Partition {
            graph,
            limits,
            hosts,
            loads,
            members,
            toward,
        }
    }

    /// Returns the host of each task.
    pub(crate) fn into_hosts(self) -> Vec<usize> {
        self.hosts
    }

    fn toward(&self, task: usize, host: usize) -> u64 {
        self.toward[task * self.members.len() + host]
    }

    fn relocate(&mut self, task: usize, to: usize) {
        let from = std::mem::replace(&mut self.hosts[task], to);
        let load = self.graph.load(task);
        self.loads[from] -= load;
        self.loads[to] += load;
        self.members[from] -= 1;
        self.members[to] += 1;
        let count = self.members.len();
        for (other, rate) in self.graph.neighbours(task) {
            self.toward[other * count + from] -= rate;
            self.toward[other * count + to] += rate;
        }
    }

    /// Returns the load of a host above its share; negative below it.
    fn excess(&self, host: usize) -> i128 {
        i128::from(self.loads[host]) - i128::from(self.limits.shares[host])
    }

    fn is_over(&self, host: usize) -> bool {
        self.loads[host] > self.limits.most[host]
    }

    /// Moves tasks from hosts over their limits, as long as that lowers the highest excess.
    pub(crate) fn rebalance(&mut self) {
        let count = self.members.len();
        loop {
            let over = (0..count).filter(|host| self.is_over(*host));
            let Some(from) = over.max_by_key(|host| (self.excess(*host), Reverse(*host))) else {
                return;
            };
            let highest = self.excess(from);
            let here = (0..self.hosts.len()).filter(|task| self.hosts[*task] == from);
            let moves = here.flat_map(|task| {
                let others = (0..count).filter(move |host| *host != from);
                others.map(move |to| (task, to))
            });
            let best = moves
                .filter_map(|(task, to)| {
                    let load = self.graph.load(task);
                    let fits = self.loads[to] + load <= self.limits.most[to];
                    let lowers = self.excess(to) + i128::from(load) < highest;
                    let loss =
                        i128::from(self.toward(task, from)) - i128::from(self.toward(task, to));
                    let key = (!fits, loss, self.excess(to), task, to);
                    (load > 0 && (fits || lowers)).then_some(key)
                })
                .min();
            match best {
                Some((.., task, to)) => self.relocate(task, to),
                None => return,
            }
        }
    }

    /// Moves a task to each host without one, if there are as many tasks as hosts.
    pub(crate) fn fill_empty(&mut self) {
        let count = self.members.len();
        let is_empty = |host: &usize| self.members[*host] == 0;
        let empty: Vec<usize> = (0..count).filter(is_empty).collect();
        for to in empty {
            let crowded = (0..self.hosts.len()).filter(|task| self.members[self.hosts[*task]] > 1);
            let best = crowded.min_by_key(|task| {
                let from = self.hosts[*task];
                (Reverse(self.excess(from)), self.toward(*task, from), *task)
            });
            match best {
                Some(task) => self.relocate(task, to),
                None => return,
            }
        }
    }

    /// Lowers the traffic between hosts by moves and swaps of tasks within the limits. Does not
    /// take a host's last task.
    pub(crate) fn refine(&mut self) {
        for _ in 0..PASSES {
            let moved = self.move_tasks();
            let swapped = self.swap_tasks();
            if !moved && !swapped {
                return;
            }
        }
    }

    /// Moves each task to the host that it exchanges most traffic with, if that host has room. A
    /// move that changes no traffic is made if it evens out the loads.
    fn move_tasks(&mut self) -> bool {
        let mut any = false;
        for task in 0..self.hosts.len() {
            let (from, load) = (self.hosts[task], self.graph.load(task));
            if self.members[from] == 1 {
                continue;
            }
            let mine = self.toward(task, from);
            let with_room = (0..self.members.len())
                .filter(|to| *to != from && self.loads[*to] + load <= self.limits.most[*to]);
            let best = with_room.max_by_key(|to| {
                let excess = Reverse(self.excess(*to));
                (self.toward(task, *to), excess, Reverse(*to))
            });
            let Some(to) = best else {
                continue;
            };
            let gain = self.toward(task, to);
            let evens = self.excess(to) + i128::from(load) < self.excess(from);
            if gain > mine || (gain == mine && evens) {
                self.relocate(task, to);
                any = true;
            }
        }
        any
    }

    /// Swaps each task with the task of another host for which that saves most traffic.
    fn swap_tasks(&mut self) -> bool {
        let count = self.members.len();
        let mut on_host: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (task, host) in self.hosts.iter().enumerate() {
            on_host[*host].push(task);
        }
        let mut any = false;
        for task in 0..self.hosts.len() {
            let from = self.hosts[task];
            let mine = self.toward(task, from);
            let mut hosts: Vec<usize> = (0..count).collect();
            hosts.retain(|to| *to != from && self.toward(task, *to) > mine);
            hosts.sort_unstable_by_key(|to| (Reverse(self.toward(task, *to)), *to));
            hosts.truncate(SWAP_HOSTS);
            let pairs = hosts
                .iter()
                .flat_map(|to| on_host[*to].iter().map(move |other| (*to, *other)));
            let best = pairs
                .filter_map(|(to, other)| {
                    let gain = self.gain_of_swap((task, from), (other, to))?;
                    Some((gain, Reverse(other), to))
                })
                .max();
            if let Some((_, Reverse(other), to)) = best {
                self.relocate(task, to);
                self.relocate(other, from);
                on_host[from].retain(|it| *it != task);
                on_host[from].push(other);
                on_host[to].retain(|it| *it != other);
                on_host[to].push(task);
                any = true;
            }
        }
        any
    }

    /// Returns the traffic that a swap saves; `None` if it saves none or exceeds a limit.
    fn gain_of_swap(&self, one: (usize, usize), other: (usize, usize)) -> Option<i128> {
        let ((a, host_a), (b, host_b)) = (one, other);
        let (load_a, load_b) = (self.graph.load(a), self.graph.load(b));
        let fits = |host: usize, less: u64, more: u64| {
            more <= less || self.loads[host] - less + more <= self.limits.most[host]
        };
        if !fits(host_a, load_a, load_b) || !fits(host_b, load_b, load_a) {
            return None;
        }
        let change = |task: usize, from: usize, to: usize| {
            i128::from(self.toward(task, to)) - i128::from(self.toward(task, from))
        };
        let bound = change(a, host_a, host_b) + change(b, host_b, host_a);
        if bound <= 0 {
            return None;
        }
        let gain = bound - 2 * i128::from(self.graph.traffic(a, b));
        (gain > 0).then_some(gain)
    }
}
