//! Colocation of vertices: instances of a group of vertices share a container, under every packing
//! policy.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use ardea_core::{Error, ErrorCode, Result};

use crate::packing::{
    InstanceId, JobDemand, PackingConfig, PackingPlan, PackingPolicy, Placement, Resources,
    VertexDemand, VertexName,
};
use crate::placement::{GRAPH_INPUTS_ATTRIBUTE, InputEdge, edges_with_rates};

/// The vertex attribute that names the first vertex of its colocation group.
///
/// The instances of a group's vertices with equal index exchange records that cannot leave a
/// process. So these instances run in one container, and the vertices have the same parallelism.
pub const COLOCATION_ATTRIBUTE: &str = "together";

/// An adapter that adds colocation to the policy `M`, which packs each group as if it were one
/// vertex.
///
/// [`PackingPolicies::get`](crate::packing::PackingPolicies::get) returns policies in this form.
/// The limit for the number of instances in a container is divided by the size of the largest
/// group, so that the limit holds for any combination of groups.
pub(crate) struct ColocatedPolicy<M>(pub(crate) M);

impl<M: AsRef<dyn PackingPolicy> + Send + Sync> PackingPolicy for ColocatedPolicy<M> {
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

/// The colocation groups of a job: the vertices of each group, by the group's name. A vertex
/// without a group forms a group by itself.
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

    fn largest(&self) -> &[VertexName] {
        let largest = self.0.values().max_by_key(|group| group.len());
        largest.map_or(&[], Vec::as_slice)
    }

    /// Returns a demand with one vertex per group. An instance of this vertex requires the
    /// resources of one instance of each vertex in the group. Its incoming edges are those of the
    /// group's vertices from other groups.
    fn as_demand(&self, demand: &JobDemand) -> Result<JobDemand> {
        let mut contracted = JobDemand {
            job: demand.job.clone(),
            vertices: Vec::new(),
        };
        let mut places: HashMap<VertexName, usize> = HashMap::new();
        let mut inputs: Vec<Vec<InputEdge>> = Vec::new();
        let of_vertices = demand.vertices.iter();
        let of_vertices = of_vertices.map(|vertex| (vertex.name.as_str(), group_of(vertex)));
        let group_names: HashMap<&str, VertexName> = of_vertices.collect();
        for (vertex, mut edges) in demand.vertices.iter().zip(edges_with_rates(demand)) {
            let name = group_of(vertex);
            for edge in &mut edges {
                if let Some(group) = group_names.get(edge.from.as_str()) {
                    edge.from = group.to_string();
                }
            }
            edges.retain(|edge| edge.from != name.as_str());
            let Some(place) = places.get(&name) else {
                places.insert(name.clone(), contracted.vertices.len());
                let mut first = vertex.clone();
                first.name = name;
                contracted.vertices.push(first);
                inputs.push(edges);
                continue;
            };
            inputs[*place].extend(edges);
            let group = &mut contracted.vertices[*place];
            let sum = group.resources.checked_add(vertex.resources);
            group.resources = sum.unwrap_or(Resources::UNLIMITED);
        }
        for (vertex, edges) in contracted.vertices.iter_mut().zip(&inputs) {
            if vertex.attributes.contains_key(GRAPH_INPUTS_ATTRIBUTE) {
                InputEdge::write(edges, &mut vertex.attributes);
            }
        }
        Ok(contracted)
    }

    /// Returns the configuration for packing groups instead of vertices. Fails if a container
    /// cannot hold the largest group.
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

    /// Converts a plan of vertices to one of groups.
    fn contract(&self, plan: &PackingPlan) -> Result<PackingPlan> {
        let demand = plan.demand();
        let mut placement = Placement::new();
        for container in plan.containers() {
            let mut here: Vec<InstanceId> = Vec::new();
            for (name, group) in &self.0 {
                // A group is located in the container of its first vertex.
                let first = group.first().unwrap_or(name);
                let instances = container.instances.iter();
                let of_first = instances.filter(|instance| instance.vertex == *first);
                here.extend(of_first.map(|instance| InstanceId::new(name.clone(), instance.index)));
            }
            if !here.is_empty() {
                placement.insert(container.id, here);
            }
        }
        // The plan was within its limits when it was created.
        PackingPlan::of(
            &self.as_demand(&demand)?,
            &PackingConfig::default(),
            placement,
        )
    }

    /// Converts a plan of groups to one of vertices.
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

/// Returns the name of a vertex's group, or its own name if it has none.
fn group_of(vertex: &VertexDemand) -> VertexName {
    match vertex.group() {
        Some(group) => VertexName::new(group.as_str()),
        None => vertex.name.clone(),
    }
}

#[cfg(test)]
mod tests;
