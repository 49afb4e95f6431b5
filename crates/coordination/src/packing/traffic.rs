//! Packing by traffic: instances that exchange much traffic share a container or a host.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::packing::bins::{Bin, Slot, Space, empty_bins, placement};
use crate::packing::policy::repack_balanced;
use crate::packing::{
    JobDemand, PackingConfig, PackingError, PackingPlan, PackingPolicy, Resource, Resources, place,
    rebalance, round_robin,
};
use crate::placement::{
    BalanceFactor, HostCapacity, PlacementError, TrafficGraph, TrafficRates, assign,
};

/// The name of the policy [`TrafficPacking`].
pub const TRAFFIC: &str = "traffic";

/// The attribute of a container with the host that the scheduler prefers for it.
pub const PREFERRED_HOST_ATTRIBUTE: &str = "preferred-host";

/// The key of [`PackingConfig::extra`] with the free hosts of the cluster, as a JSON list of
/// [`HostResources`].
pub const HOSTS_KEY: &str = "placement.hosts";

/// The key of [`PackingConfig::extra`] with the balance factor in percent.
pub const BALANCE_KEY: &str = "placement.balance_percent";

/// The key of [`PackingConfig::extra`] with the number of groups at which consolidation stops.
pub const GROUPS_KEY: &str = "placement.groups";

/// A host of the cluster, with the resources that other jobs have left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostResources {
    /// The name of the host.
    pub name: String,
    /// Its free resources.
    pub free: Resources,
}

/// A policy that packs instances for the least traffic between hosts, or between containers if the
/// hosts are not known.
///
/// The rates are those declared for the job's edges, or assumed from the graph
/// ([`TrafficRates`]). With hosts ([`HOSTS_KEY`]), each host gets containers in proportion to its
/// free resources, the instances are assigned to hosts, and those of a host are dealt to its
/// containers in turn. A container has the attribute [`PREFERRED_HOST_ATTRIBUTE`] then. An instance
/// that does not fit is placed into the container with the fewest instances that has room. The
/// traffic between containers of unknown hosts is never above that of
/// [`RoundRobin`](crate::packing::RoundRobin). (TurboStream, ICDCS 2018, §V.)
#[derive(Clone, Copy, Debug, Default)]
pub struct TrafficPacking;

impl PackingPolicy for TrafficPacking {
    fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan> {
        let options = TrafficOptions::of(config, &demand.job)?;
        let in_job = |error: PlacementError| error.into_error(&demand.job);
        let space = Space::new(demand, config).map_err(|error| error.into_error(&demand.job))?;
        let graph = TrafficRates::assumed().graph(demand).map_err(in_job)?;
        let instances = graph.len();
        let wanted = config.containers.map(|count| count.get() as usize);
        let count = wanted
            .unwrap_or_else(|| space.least_containers())
            .min(instances);
        let of_hosts = containers_of_hosts(&options.hosts, count, container_size(demand, count));
        let hosts: Vec<HostCapacity> = match of_hosts.is_empty() {
            true => vec![HostCapacity(1); count],
            false => {
                let counts = of_hosts.iter().map(|containers| *containers as u64);
                counts.map(HostCapacity).collect()
            }
        };
        let assigned = assign(&graph, &hosts, options.balance, options.groups).map_err(in_job)?;
        let containers = match of_hosts.is_empty() {
            true => assigned,
            false => dealt_within_hosts(&assigned, &of_hosts),
        };
        let mut bins = filled(&space, &containers, count).map_err(|e| e.into_error(&demand.job))?;
        if of_hosts.is_empty()
            && let Ok(turns) = round_robin::dealt(&space, config.containers)
            && turns.len() <= bins.len()
            && cut(&space, &graph, &turns) < cut(&space, &graph, &bins)
        {
            bins = turns;
        }
        let mut plan = PackingPlan::of(demand, config, placement(&space, bins))?;
        let names = options.hosts.iter().zip(&of_hosts);
        let names = names.flat_map(|(host, count)| std::iter::repeat_n(&host.name, *count));
        for (id, name) in (1..).zip(names) {
            let id = crate::packing::ContainerId(id);
            plan = plan.with_attribute(id, PREFERRED_HOST_ATTRIBUTE, name);
        }
        Ok(plan)
    }

    fn repack(
        &self,
        current: &PackingPlan,
        demand: &JobDemand,
        config: &PackingConfig,
    ) -> Result<PackingPlan> {
        let next = repack_balanced(current, demand, config, config.containers)?;
        Ok(with_attributes_of(current, next))
    }

    fn spread_over(
        &self,
        current: &PackingPlan,
        config: &PackingConfig,
        containers: NonZeroU32,
    ) -> Result<PackingPlan> {
        let next = rebalance::spread_over(current, config, containers)?;
        Ok(with_attributes_of(current, next))
    }
}

/// The options of the policy, from [`PackingConfig::extra`].
struct TrafficOptions {
    hosts: Vec<HostResources>,
    balance: BalanceFactor,
    groups: Option<usize>,
}

impl TrafficOptions {
    fn of(config: &PackingConfig, job: &str) -> Result<Self> {
        let number = |key: &str| -> Result<Option<u32>> {
            let text = config.extra.get(key);
            let number = text.map(|text| text.parse::<u32>().map_err(|why| invalid(job, key, why)));
            number.transpose()
        };
        let hosts = config.extra.get(HOSTS_KEY);
        let hosts = hosts.map(|text| serde_json::from_str(text));
        let hosts: Option<Vec<HostResources>> = hosts
            .transpose()
            .map_err(|why| invalid(job, HOSTS_KEY, why))?;
        if hosts.as_ref().is_some_and(Vec::is_empty) {
            return Err(PlacementError::NoCapacity { hosts: 0 }.into_error(job));
        }
        Ok(TrafficOptions {
            hosts: hosts.unwrap_or_default(),
            balance: number(BALANCE_KEY)?.map_or_else(BalanceFactor::default, BalanceFactor),
            groups: number(GROUPS_KEY)?.map(|groups| groups as usize),
        })
    }
}

fn invalid(job: &str, key: &str, why: impl std::error::Error + Send + Sync + 'static) -> Error {
    let what = format!("job {job:?} can't be packed: the value of {key} is invalid");
    Error::new(ErrorCode::InvalidConfig, what)
        .because(why)
        .hint("leave it out, or give it as documented for the packing policy traffic")
}

/// Returns the mean size of a container, if the job has this number of them.
fn container_size(demand: &JobDemand, containers: usize) -> Resources {
    let total = |of: Resource| {
        let vertices = demand.vertices.iter();
        let amounts = vertices
            .map(|vertex| u128::from(vertex.parallelism) * u128::from(vertex.resources.amount(of)));
        let mean = amounts.sum::<u128>().div_ceil(containers.max(1) as u128);
        u64::try_from(mean).unwrap_or(u64::MAX)
    };
    Resources {
        cpu: crate::packing::MilliCores(total(Resource::Cpu)),
        memory_bytes: total(Resource::Memory),
        disk_bytes: total(Resource::Disk),
    }
}

/// Returns the number of containers of each host, in proportion to the free resources: each
/// container goes to the host with the most room for another one. Returns nothing without hosts.
fn containers_of_hosts(hosts: &[HostResources], count: usize, size: Resources) -> Vec<usize> {
    let mut counts = vec![0; hosts.len()];
    if hosts.is_empty() {
        return counts;
    }
    // In millionths of containers. Without required resources, all hosts have the same room.
    let room: Vec<u128> = hosts
        .iter()
        .map(|host| {
            let of = |resource: Resource| {
                let (free, needed) = (host.free.amount(resource), size.amount(resource));
                (needed > 0).then(|| u128::from(free) * 1_000_000 / u128::from(needed))
            };
            let scarcest = Resource::ALL.into_iter().filter_map(of).min();
            scarcest.unwrap_or(1_000_000)
        })
        .collect();
    for _ in 0..count {
        let best = (0..hosts.len()).max_by_key(|host| {
            let next = counts[*host] as u128 + 1;
            (room[*host] / next, Reverse(*host))
        });
        if let Some(host) = best {
            counts[host] += 1;
        }
    }
    counts
}

/// Deals the instances of each host to its containers in turn, and returns the container of each
/// instance.
fn dealt_within_hosts(assigned: &[usize], of_hosts: &[usize]) -> Vec<usize> {
    let mut firsts = Vec::with_capacity(of_hosts.len());
    let mut next = 0;
    for count in of_hosts {
        firsts.push(next);
        next += count;
    }
    let mut turns = vec![0; of_hosts.len()];
    let containers = assigned.iter().map(|host| {
        let turn = turns[*host] % of_hosts[*host].max(1);
        turns[*host] += 1;
        firsts[*host] + turn
    });
    containers.collect()
}

/// Fills `count` containers with the instances assigned to them, as far as they fit, and places the
/// others where there is room.
fn filled(space: &Space<'_>, containers: &[usize], count: usize) -> Result<Vec<Bin>, PackingError> {
    let mut bins = empty_bins(count);
    let assigned = space.slots().zip(containers);
    let homeless = assigned.filter(|(slot, container)| !bins[**container].put(space, *slot));
    let homeless: Vec<Slot> = homeless.map(|(slot, _)| slot).collect();
    place::spread(space, &mut bins, &homeless)?;
    Ok(bins)
}

/// Returns the traffic between containers.
fn cut(space: &Space<'_>, graph: &TrafficGraph, bins: &[Bin]) -> u64 {
    let mut containers = BTreeMap::new();
    for (container, bin) in bins.iter().enumerate() {
        containers.extend(bin.slots.iter().map(|slot| (*slot, container)));
    }
    let of_slots = space.slots().map(|slot| containers.get(&slot).copied());
    let of_slots: Vec<usize> = of_slots.map(|container| container.unwrap_or(0)).collect();
    graph.cut(&of_slots)
}

/// Returns the plan with the attributes that its containers have in the current plan.
fn with_attributes_of(current: &PackingPlan, mut next: PackingPlan) -> PackingPlan {
    for container in current.containers() {
        for (name, value) in &container.attributes {
            next = next.with_attribute(container.id, name, value);
        }
    }
    next
}

#[cfg(test)]
mod tests;
