//! What has to be in one container stays together, whichever policy packs.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use ardea_core::{Error, ErrorCode, Result};

use crate::packing::{
    InstanceId, JobDemand, PackingConfig, PackingPlan, Placement, ResourceManager, Resources,
    VertexDemand, VertexName,
};

/// The attribute of a vertex that names the first vertex of the group which it is in.
///
/// Instances of one number of a group's vertices hand each other records that can't leave a process, so they have to run in one
/// container, and the vertices have as many instances as each other.
pub const TOGETHER_ATTRIBUTE: &str = "together";

/// A policy that keeps groups together, made of one that needs not know of them: it packs each group as if it were one vertex.
///
/// [`ResourceManagers::get`](crate::packing::ResourceManagers::get) gives out policies in this form. A container's limit of instances is
/// divided by the size of the largest group, so that it holds whichever groups come together.
pub(crate) struct Together<M>(pub(crate) M);

impl<M: AsRef<dyn ResourceManager> + Send + Sync> ResourceManager for Together<M> {
    fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan> {
        let manager = self.0.as_ref();
        let groups = Groups::of(demand)?;
        if groups.is_trivial() {
            return manager.pack(demand, config);
        }
        let config_of_groups = groups.within(demand, config)?;
        let plan = manager.pack(&groups.as_demand(demand)?, &config_of_groups)?;
        groups.expand(demand, config, &plan)
    }

    fn repack(
        &self,
        current: &PackingPlan,
        demand: &JobDemand,
        config: &PackingConfig,
    ) -> Result<PackingPlan> {
        let manager = self.0.as_ref();
        let groups = Groups::of(demand)?;
        if groups.is_trivial() {
            return manager.repack(current, demand, config);
        }
        let before = Groups::of(&current.demand())?.contract(current)?;
        let config_of_groups = groups.within(demand, config)?;
        let plan = manager.repack(&before, &groups.as_demand(demand)?, &config_of_groups)?;
        groups.expand(demand, config, &plan)
    }

    fn spread_over(
        &self,
        current: &PackingPlan,
        config: &PackingConfig,
        containers: NonZeroU32,
    ) -> Result<PackingPlan> {
        let manager = self.0.as_ref();
        let demand = current.demand();
        let groups = Groups::of(&demand)?;
        if groups.is_trivial() {
            return manager.spread_over(current, config, containers);
        }
        let config_of_groups = groups.within(&demand, config)?;
        let before = groups.contract(current)?;
        let plan = manager.spread_over(&before, &config_of_groups, containers)?;
        groups.expand(&demand, config, &plan)
    }
}

/// The groups of a job: the vertices of each, by its first; a vertex that may be anywhere is one by itself.
struct Groups(BTreeMap<VertexName, Vec<VertexName>>);

impl Groups {
    fn of(demand: &JobDemand) -> Result<Self> {
        let mut groups: BTreeMap<VertexName, Vec<VertexName>> = BTreeMap::new();
        let mut counts: HashMap<VertexName, (&VertexName, u32)> = HashMap::new();
        for vertex in &demand.vertices {
            let name = group_of(vertex);
            let (first, count) = *counts
                .entry(name.clone())
                .or_insert((&vertex.name, vertex.parallelism));
            if count != vertex.parallelism {
                let what = format!(
                    "vertices {first:?} and {:?} of job {:?} stay together, and can't have {count} and {} instances",
                    vertex.name, demand.job, vertex.parallelism
                );
                return Err(Error::new(ErrorCode::InvalidJob, what)
                    .hint("give all vertices that stay together the same number of instances"));
            }
            groups.entry(name).or_default().push(vertex.name.clone());
        }
        Ok(Groups(groups))
    }

    fn is_trivial(&self) -> bool {
        self.largest().len() <= 1
    }

    /// The vertices of the largest group.
    fn largest(&self) -> &[VertexName] {
        let largest = self.0.values().max_by_key(|group| group.len());
        largest.map_or(&[], Vec::as_slice)
    }

    /// The demand with a vertex a group, which takes what its vertices take together.
    fn as_demand(&self, demand: &JobDemand) -> Result<JobDemand> {
        let mut contracted = JobDemand {
            job: demand.job.clone(),
            vertices: Vec::new(),
        };
        let mut places: HashMap<VertexName, usize> = HashMap::new();
        for vertex in &demand.vertices {
            let name = group_of(vertex);
            let Some(place) = places.get(&name) else {
                places.insert(name.clone(), contracted.vertices.len());
                let mut first = vertex.clone();
                first.name = name;
                contracted.vertices.push(first);
                continue;
            };
            let group = &mut contracted.vertices[*place];
            let sum = group.resources.checked_add(vertex.resources);
            group.resources = sum.unwrap_or(Resources::UNLIMITED);
        }
        Ok(contracted)
    }

    /// The configuration for packing groups instead of vertices; refuses one by which a container can't hold the largest group.
    fn within(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingConfig> {
        let mut config = config.clone();
        let Some(most) = config.limits.instances else {
            return Ok(config);
        };
        let largest = self.largest();
        let size = u32::try_from(largest.len()).unwrap_or(u32::MAX);
        let groups = NonZeroU32::new(most.get() / size.max(1)).ok_or_else(|| {
            let names: Vec<&str> = largest.iter().map(VertexName::as_str).collect();
            let what = format!(
                "job {:?} can't be packed: {} stay together, so a container holds {size} instances or none, and it may have {most}",
                demand.job,
                names.join(" + ")
            );
            Error::new(ErrorCode::ResourcesImpossible, what)
                .hint("allow more instances in a container")
        })?;
        config.limits.instances = Some(groups);
        Ok(config)
    }

    /// A plan of vertices as one of groups.
    fn contract(&self, plan: &PackingPlan) -> Result<PackingPlan> {
        let demand = plan.demand();
        let mut placement = Placement::new();
        for container in plan.containers() {
            let mut here: Vec<InstanceId> = Vec::new();
            for (name, group) in &self.0 {
                // Where the first of a group's vertices is, the group is.
                let first = group.first().unwrap_or(name);
                let instances = container.instances.iter();
                let of_first = instances.filter(|instance| instance.vertex == *first);
                here.extend(of_first.map(|instance| InstanceId::new(name.clone(), instance.index)));
            }
            if !here.is_empty() {
                placement.insert(container.id, here);
            }
        }
        // It was within its limits when it was made.
        PackingPlan::of(
            &self.as_demand(&demand)?,
            &PackingConfig::default(),
            placement,
        )
    }

    /// A plan of groups as one of vertices.
    fn expand(
        &self,
        demand: &JobDemand,
        config: &PackingConfig,
        plan: &PackingPlan,
    ) -> Result<PackingPlan> {
        let mut placement = Placement::new();
        for container in plan.containers() {
            let of_group = |instance: &InstanceId| {
                let group = self.0.get(&instance.vertex).cloned().unwrap_or_default();
                let index = instance.index;
                group
                    .into_iter()
                    .map(move |vertex| InstanceId { vertex, index })
            };
            let instances = container.instances.iter().flat_map(of_group);
            placement.insert(container.id, instances.collect());
        }
        let mut expanded = PackingPlan::of(demand, config, placement)?;
        for container in plan.containers() {
            for (name, value) in &container.attributes {
                expanded = expanded.with_attribute(container.id, name, value);
            }
        }
        Ok(expanded)
    }
}

/// The name of the group that a vertex is in; its own if it is in none.
fn group_of(vertex: &VertexDemand) -> VertexName {
    match vertex.group() {
        Some(group) => VertexName::new(group.as_str()),
        None => vertex.name.clone(),
    }
}

#[cfg(test)]
mod tests;
