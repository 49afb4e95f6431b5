//! Assignment of consolidated tasks to hosts.

use crate::placement::bisection::bisect;
use crate::placement::partition::{LoadLimits, Partition};
use crate::placement::{Consolidation, ConsolidationLimits, PlacementError, TrafficGraph};

/// The capacity of a host for a job's tasks, such as its free cpu. The load of the tasks is divided
/// in proportion to the capacities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCapacity(pub u64);

/// The part of its share, in percent, by which the load of a host may exceed its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BalanceFactor(pub u32);

impl Default for BalanceFactor {
    fn default() -> Self {
        BalanceFactor(10)
    }
}

/// The number of groups for each host at which consolidation stops by default.
const GROUPS_PER_HOST: usize = 4;

/// The minimum number of groups at which consolidation stops by default. Smaller graphs are split
/// by their tasks.
const LEAST_GROUPS: usize = 64;

/// The maximum size of a table of tasks and hosts. Levels beyond it are not refined.
const MOST_CELLS: usize = 1 << 25;

/// Assigns tasks to hosts, and returns the host of each. `threshold` is the number of groups at
/// which consolidation stops; `None` chooses it by the number of hosts. The load of a group is at
/// most half the share of the smallest host.
///
/// # Errors
/// [`PlacementError::NoCapacity`] if no host has capacity; [`PlacementError::ThresholdZero`] if the
/// threshold is zero.
pub fn assign(
    graph: &TrafficGraph,
    hosts: &[HostCapacity],
    balance: BalanceFactor,
    threshold: Option<usize>,
) -> Result<Vec<usize>, PlacementError> {
    let threshold = threshold.unwrap_or((hosts.len() * GROUPS_PER_HOST).max(LEAST_GROUPS));
    let (_, capacities) = usable(hosts)?;
    let shares = LoadLimits::new(graph.loads(), &capacities, 0).shares;
    let most_load = shares.into_iter().min().unwrap_or(0) / 2;
    let limits = ConsolidationLimits::new(threshold, most_load)?;
    assign_consolidated(&Consolidation::of(graph, limits), hosts, balance)
}

/// Assigns the tasks of a consolidation to hosts, and returns the host of each.
///
/// # Errors
/// [`PlacementError::NoCapacity`] if no host has capacity.
pub fn assign_consolidated(
    tasks: &Consolidation<'_>,
    hosts: &[HostCapacity],
    balance: BalanceFactor,
) -> Result<Vec<usize>, PlacementError> {
    let (positions, capacities) = usable(hosts)?;
    let BalanceFactor(percent) = balance;
    let graph = tasks.graph(0);
    let limits = LoadLimits::new(graph.loads(), &capacities, percent);
    let mut assigned = vec![0; tasks.groups().len()];
    let all: Vec<usize> = (0..assigned.len()).collect();
    split(tasks.groups(), all, &capacities, 0, percent, &mut assigned);
    for level in (0..=tasks.level_count()).rev() {
        if level < tasks.level_count() {
            let parents = tasks.parents(level + 1).iter();
            assigned = parents.map(|parent| assigned[*parent]).collect();
        }
        assigned = refined(tasks.graph(level), &limits, assigned, level == 0);
    }
    let mut dealt = dealt(graph, &limits);
    if is_refinable(graph, &limits) {
        // Refinement alone never raises the cut.
        let mut partition = Partition::new(graph, &limits, dealt);
        partition.refine();
        dealt = partition.into_hosts();
    }
    let best = match graph.cut(&dealt) < graph.cut(&assigned) {
        true => dealt,
        false => assigned,
    };
    Ok(best.into_iter().map(|host| positions[host]).collect())
}

/// Assigns tasks to hosts in turn, as the comparison for other assignments. A host without room for
/// a task within the balance factor is skipped.
///
/// # Errors
/// [`PlacementError::NoCapacity`] if no host has capacity.
pub fn round_robin(
    graph: &TrafficGraph,
    hosts: &[HostCapacity],
    balance: BalanceFactor,
) -> Result<Vec<usize>, PlacementError> {
    let (positions, capacities) = usable(hosts)?;
    let limits = LoadLimits::new(graph.loads(), &capacities, balance.0);
    let dealt = dealt(graph, &limits).into_iter();
    Ok(dealt.map(|host| positions[host]).collect())
}

/// Returns the positions and capacities of the hosts that have any.
fn usable(hosts: &[HostCapacity]) -> Result<(Vec<usize>, Vec<u64>), PlacementError> {
    let with_capacity = hosts.iter().enumerate().filter(|(_, host)| host.0 > 0);
    let usable: (Vec<usize>, Vec<u64>) = with_capacity.map(|(at, host)| (at, host.0)).unzip();
    match usable.0.is_empty() {
        true => Err(PlacementError::NoCapacity { hosts: hosts.len() }),
        false => Ok(usable),
    }
}

fn dealt(graph: &TrafficGraph, limits: &LoadLimits) -> Vec<usize> {
    let count = limits.most.len();
    let mut loads = vec![0_u64; count];
    let mut turn = 0;
    let hosts = graph.loads().iter().map(|load| {
        let mut turns = (0..count).map(|step| (turn + step) % count);
        let with_room = turns.find(|host| loads[*host] + load <= limits.most[*host]);
        let excess = |host: &usize| i128::from(loads[*host]) - i128::from(limits.shares[*host]);
        let host = with_room.or_else(|| (0..count).min_by_key(excess));
        let host = host.unwrap_or(0);
        loads[host] += load;
        turn = (host + 1) % count;
        host
    });
    hosts.collect()
}

/// Splits tasks over the hosts from `first` on with these capacities, recursively, until each part
/// has one host.
fn split(
    graph: &TrafficGraph,
    tasks: Vec<usize>,
    capacities: &[u64],
    first: usize,
    percent: u32,
    assigned: &mut [usize],
) {
    if capacities.len() == 1 || tasks.is_empty() {
        tasks.into_iter().for_each(|task| assigned[task] = first);
        return;
    }
    let half = capacities.len().div_ceil(2);
    let (left, right) = capacities.split_at(half);
    let of_parts = [left, right].map(|part| {
        let sum: u128 = part.iter().map(|of| u128::from(*of)).sum();
        u64::try_from(sum).unwrap_or(u64::MAX)
    });
    let is_left = bisect(&graph.part(&tasks), of_parts, percent);
    let marked = tasks.into_iter().zip(is_left);
    let (here, there): (Vec<_>, Vec<_>) = marked.partition(|(_, is_left)| *is_left);
    let tasks = |part: Vec<(usize, bool)>| part.into_iter().map(|(task, _)| task).collect();
    split(graph, tasks(here), left, first, percent, assigned);
    split(graph, tasks(there), right, first + half, percent, assigned);
}

fn is_refinable(graph: &TrafficGraph, limits: &LoadLimits) -> bool {
    graph.len().saturating_mul(limits.most.len()) <= MOST_CELLS
}

/// Returns the assignment after rebalancing and refinement. A host without tasks gets one if
/// `is_last` is true.
fn refined(
    graph: &TrafficGraph,
    limits: &LoadLimits,
    assigned: Vec<usize>,
    is_last: bool,
) -> Vec<usize> {
    if !is_refinable(graph, limits) {
        return assigned;
    }
    let mut partition = Partition::new(graph, limits, assigned);
    partition.rebalance();
    if is_last {
        partition.fill_empty();
    }
    partition.refine();
    partition.into_hosts()
}

#[cfg(test)]
mod tests;
