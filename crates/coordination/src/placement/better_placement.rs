//! A better placement for a running job, with few moves.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use ardea_core::Result;

use crate::packing::{ContainerId, InstanceId, PackingConfig, PackingPlan, Placement};
use crate::placement::partition::{LoadLimits, Partition};
use crate::placement::{
    BalanceFactor, HostCapacity, TrafficGraph, TrafficRates, assign, colocated_tasks,
};

/// Another placement of a running job's instances in its present containers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CandidatePlacement {
    /// The plan with the other placement.
    pub plan: PackingPlan,
    /// The traffic between hosts under the present plan, in records a second.
    pub cut_before: u64,
    /// The traffic between hosts under the other plan, in records a second.
    pub cut_after: u64,
    /// The number of instances that move to another container.
    pub moves: usize,
}

impl CandidatePlacement {
    /// Returns the traffic that the replacement saves, in records a second.
    pub fn saved(&self) -> u64 {
        self.cut_before.saturating_sub(self.cut_after)
    }
}

/// The conditions of a search for a better placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CandidateLimits {
    /// The balance factor.
    pub balance: BalanceFactor,
    /// The number of groups at which consolidation stops, if it is not the default.
    pub groups: Option<usize>,
    /// The cost of a move, in records a second that a move must save.
    pub move_cost: u64,
}

/// Returns the traffic between hosts under a plan, in records a second. `hosts` has the host of
/// each container; a container without one counts as a host by itself.
///
/// # Errors
/// If a rate is too large.
pub fn cut_of_plan(
    plan: &PackingPlan,
    hosts: &BTreeMap<ContainerId, String>,
    rates: &TrafficRates,
) -> Result<u64> {
    let demand = plan.demand();
    let graph = rates.graph(&demand);
    let graph = graph.map_err(|error| error.into_error(plan.job()))?;
    let containers = HostsOfContainers::new(plan, hosts);
    let places = places_of(plan);
    let instances = demand.vertices.iter().flat_map(|vertex| vertex.instances());
    let of_instances = instances.map(|id| containers.host_of[&places[&id]]);
    Ok(graph.cut(&of_instances.collect::<Vec<_>>()))
}

/// Returns the placement that saves most traffic between hosts after the cost of its moves; `None`
/// if none saves any. Instances move between present containers only, and no container exceeds its
/// limits. Instances that must share a container move together.
///
/// Two placements are compared: the present one after refinement, which moves few instances, and a
/// new one ([`assign`]).
///
/// # Errors
/// If a rate is too large, or a plan cannot be built.
pub fn better_placement(
    plan: &PackingPlan,
    config: &PackingConfig,
    hosts: &BTreeMap<ContainerId, String>,
    rates: &TrafficRates,
    limits: CandidateLimits,
) -> Result<Option<CandidatePlacement>> {
    let demand = plan.demand();
    let in_job = |error: crate::placement::PlacementError| error.into_error(plan.job());
    let instances_graph = rates.graph(&demand).map_err(in_job)?;
    let (groups, count) = colocated_tasks(&demand);
    let graph = instances_graph.contract(&groups, count);
    let containers = HostsOfContainers::new(plan, hosts);
    let places = places_of(plan);
    let ids: Vec<InstanceId> = demand.vertices.iter().flat_map(|v| v.instances()).collect();
    let mut present = vec![0; count];
    for (id, group) in ids.iter().zip(&groups) {
        present[*group] = containers.host_of[&places[id]];
    }
    let before = graph.cut(&present);
    let refined = refined(&graph, &containers, present.clone(), limits.balance);
    let fresh = assign(
        &graph,
        &containers.capacities,
        limits.balance,
        limits.groups,
    );
    let fresh = relabelled(fresh.map_err(in_job)?, &present, &containers.capacities);
    let worth = |hosts: &Vec<usize>| {
        let moved = hosts.iter().zip(&present).filter(|(a, b)| a != b).count() as i128;
        let saved = i128::from(before) - i128::from(graph.cut(hosts));
        saved - moved * i128::from(limits.move_cost)
    };
    let best = [refined, fresh].into_iter().max_by_key(worth);
    let Some(best) = best.filter(|hosts| worth(hosts) > 0) else {
        return Ok(None);
    };
    let Some(placement) = moved(plan, &containers, &groups, &ids, &best) else {
        return Ok(None);
    };
    // A move that exceeds the limits of its container is not made: the plan is refused then.
    let Ok(mut next) = PackingPlan::of(&demand, config, placement) else {
        return Ok(None);
    };
    for container in plan.containers() {
        for (name, value) in &container.attributes {
            next = next.with_attribute(container.id, name, value);
        }
    }
    let moves = plan.change_to(&next).moved.len();
    let after = graph.cut(&best);
    Ok((moves > 0).then_some(CandidatePlacement {
        plan: next,
        cut_before: before,
        cut_after: after,
        moves,
    }))
}

/// The hosts of a plan's containers, numbered.
struct HostsOfContainers {
    host_of: BTreeMap<ContainerId, usize>,
    /// The number of containers of each host.
    capacities: Vec<HostCapacity>,
}

impl HostsOfContainers {
    fn new(plan: &PackingPlan, hosts: &BTreeMap<ContainerId, String>) -> Self {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let (mut host_of, mut capacities) = (BTreeMap::new(), Vec::new());
        for container in plan.containers() {
            let next = capacities.len();
            let number = match hosts.get(&container.id) {
                Some(name) => *numbers.entry(name).or_insert(next),
                None => next,
            };
            if number == next {
                capacities.push(HostCapacity(0));
            }
            capacities[number].0 += 1;
            host_of.insert(container.id, number);
        }
        HostsOfContainers {
            host_of,
            capacities,
        }
    }
}

/// Returns the container of each instance.
fn places_of(plan: &PackingPlan) -> HashMap<InstanceId, ContainerId> {
    let containers = plan.containers().iter();
    let places = containers.flat_map(|container| {
        let instances = container.instances.iter();
        instances.map(|instance| (instance.clone(), container.id))
    });
    places.collect()
}

/// Returns the present assignment after moves and swaps that lower the cut.
fn refined(
    graph: &TrafficGraph,
    containers: &HostsOfContainers,
    present: Vec<usize>,
    balance: BalanceFactor,
) -> Vec<usize> {
    let capacities: Vec<u64> = containers.capacities.iter().map(|host| host.0).collect();
    let limits = LoadLimits::new(graph.loads(), &capacities, balance.0);
    let mut partition = Partition::new(graph, &limits, present);
    partition.refine();
    partition.into_hosts()
}

/// Renames the hosts of a new assignment among those of equal capacity, so that many tasks keep
/// their present host.
fn relabelled(fresh: Vec<usize>, present: &[usize], capacities: &[HostCapacity]) -> Vec<usize> {
    let mut shared: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for pair in fresh.iter().copied().zip(present.iter().copied()) {
        *shared.entry(pair).or_default() += 1;
    }
    let mut pairs: Vec<_> = shared.into_iter().collect();
    pairs.sort_by_key(|(pair, count)| (Reverse(*count), *pair));
    let mut names = vec![None; capacities.len()];
    let mut is_taken = vec![false; capacities.len()];
    for ((from, to), _) in pairs {
        if names[from].is_none() && !is_taken[to] && capacities[from] == capacities[to] {
            (names[from], is_taken[to]) = (Some(to), true);
        }
    }
    for from in 0..names.len() {
        if names[from].is_none() {
            let free = (0..names.len()).filter(|to| !is_taken[*to]);
            let to = free.min_by_key(|to| (capacities[*to] != capacities[from], *to != from, *to));
            let to = to.unwrap_or(from);
            (names[from], is_taken[to]) = (Some(to), true);
        }
    }
    let renamed = fresh.into_iter().map(|host| names[host].unwrap_or(host));
    renamed.collect()
}

/// Returns the placement in which each group runs on its host in `hosts`. A group that keeps its
/// host keeps its container; another goes to the container of its host with the fewest instances.
/// `None` if a container would lose all its instances.
fn moved(
    plan: &PackingPlan,
    containers: &HostsOfContainers,
    groups: &[usize],
    ids: &[InstanceId],
    hosts: &[usize],
) -> Option<Placement> {
    let places = places_of(plan);
    let mut members: BTreeMap<usize, Vec<&InstanceId>> = BTreeMap::new();
    for (id, group) in ids.iter().zip(groups) {
        members.entry(*group).or_default().push(id);
    }
    let empty = plan.containers().iter().map(|it| (it.id, Vec::new()));
    let mut placement: Placement = empty.collect();
    let mut moving = Vec::new();
    for (group, ids) in members {
        let container = ids.first().map(|id| places[*id])?;
        match containers.host_of[&container] == hosts[group] {
            true => {
                let here = placement.entry(container).or_default();
                here.extend(ids.into_iter().cloned());
            }
            false => moving.push((group, ids)),
        }
    }
    for (group, ids) in moving {
        let of_host = containers.host_of.iter();
        let of_host = of_host.filter(|(_, host)| **host == hosts[group]);
        let to = of_host.min_by_key(|(id, _)| (placement[*id].len(), **id));
        let here = placement.get_mut(to?.0)?;
        here.extend(ids.into_iter().cloned());
    }
    let has_empty = placement.values().any(Vec::is_empty);
    (!has_empty).then_some(placement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::{
        COLOCATION_ATTRIBUTE, JobDemand, PackingPolicy, Resources, RoundRobin, VertexDemand,
    };
    use std::num::NonZeroU32;

    const LIMITS: CandidateLimits = CandidateLimits {
        balance: BalanceFactor(10),
        groups: None,
        move_cost: 1,
    };

    /// Four sources and four sinks over two containers; source `i` sends to sink `i + shift`.
    fn shifted(shift: u32) -> (PackingPlan, TrafficRates) {
        let demand = JobDemand::new("pairs")
            .vertex(VertexDemand::new("reads", 4, Resources::ZERO))
            .vertex(VertexDemand::new("writes", 4, Resources::ZERO));
        let config = PackingConfig {
            containers: NonZeroU32::new(2),
            ..PackingConfig::default()
        };
        let mut rates = TrafficRates::assumed();
        for index in 0..4 {
            let to = InstanceId::new("writes", (index + shift) % 4);
            rates
                .measure(&InstanceId::new("reads", index), &to, 1_000.0)
                .unwrap();
        }
        (RoundRobin.pack(&demand, &config).unwrap(), rates)
    }

    fn better(plan: &PackingPlan, rates: &TrafficRates) -> Option<CandidatePlacement> {
        let config = PackingConfig::default();
        better_placement(plan, &config, &BTreeMap::new(), rates, LIMITS).unwrap()
    }

    #[test]
    fn a_placement_that_fits_the_traffic_is_not_replaced() {
        let (plan, rates) = shifted(2);
        assert_eq!(cut_of_plan(&plan, &BTreeMap::new(), &rates).unwrap(), 0);
        assert_eq!(better(&plan, &rates), None);
    }

    #[test]
    fn a_shift_of_traffic_moves_instances_to_their_partners() {
        let (plan, rates) = shifted(1);
        let better = better(&plan, &rates).unwrap();
        assert_eq!((better.cut_before, better.cut_after), (4_000, 0));
        assert_eq!(better.moves, 4);
        let next = cut_of_plan(&better.plan, &BTreeMap::new(), &rates).unwrap();
        assert_eq!(next, 0);
        let sizes: Vec<usize> = better
            .plan
            .containers()
            .iter()
            .map(|it| it.instances.len())
            .collect();
        assert_eq!(sizes, [4, 4]);
    }

    #[test]
    fn containers_of_one_host_have_no_traffic_between_hosts() {
        let (plan, rates) = shifted(1);
        let hosts = [1, 2].map(|id| (ContainerId(id), "a".to_string())).into();
        assert_eq!(cut_of_plan(&plan, &hosts, &rates).unwrap(), 0);
        let config = PackingConfig::default();
        let none = better_placement(&plan, &config, &hosts, &rates, LIMITS).unwrap();
        assert_eq!(none, None);
    }

    #[test]
    fn moves_that_cost_more_than_they_save_are_not_made() {
        let (plan, rates) = shifted(1);
        let config = PackingConfig::default();
        let costly = CandidateLimits {
            move_cost: 1_001,
            ..LIMITS
        };
        let none = better_placement(&plan, &config, &BTreeMap::new(), &rates, costly).unwrap();
        assert_eq!(none, None);
    }

    #[test]
    fn colocated_instances_move_together() {
        let (plan, rates) = shifted(1);
        let mut demand = plan.demand();
        let extra = VertexDemand::new("checks", 4, Resources::ZERO);
        demand = demand.vertex(extra.attribute(COLOCATION_ATTRIBUTE, "writes"));
        let attributes = &mut demand.vertices[1].attributes;
        attributes.insert(COLOCATION_ATTRIBUTE.into(), "writes".into());
        let mut placement = Placement::new();
        for container in plan.containers() {
            let here = container.instances.iter().cloned();
            let more = container
                .instances
                .iter()
                .filter(|it| it.vertex.as_str() == "writes");
            let more = more.map(|it| InstanceId::new("checks", it.index));
            placement.insert(container.id, here.chain(more).collect());
        }
        let plan = PackingPlan::of(&demand, &PackingConfig::default(), placement).unwrap();
        let next = better(&plan, &rates).unwrap().plan;
        for index in 0..4 {
            let [one, other] = ["writes", "checks"].map(|name| InstanceId::new(name, index));
            assert_eq!(next.container_of(&one), next.container_of(&other));
        }
    }
}
