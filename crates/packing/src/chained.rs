//! Chains stay together: what hands records over without a queue has to be in one container, whichever policy packs.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use ardea_core::{Error, ErrorCode, Result};

use crate::{
    InstanceId, JobDemand, PackingConfig, PackingPlan, Placement, ResourceManager, Resources,
    VertexDemand, VertexName,
};

/// The attribute of a vertex that names the first vertex of the chain which it is in.
///
/// Instance *i* of a chain's vertices hand records to each other without a queue, so they have to run in one container, and the
/// vertices have as many instances as each other.
pub const CHAIN_ATTRIBUTE: &str = "chain";

/// A policy that keeps chains together, made of one that needs not know of them: it packs each chain as if it were one vertex.
///
/// [`ResourceManagers::get`](crate::ResourceManagers::get) gives out policies in this form. A container's limit of instances is
/// divided by the length of the longest chain, so that it holds whichever chains come together.
pub(crate) struct Chained<M>(pub(crate) M);

impl<M: AsRef<dyn ResourceManager> + Send + Sync> ResourceManager for Chained<M> {
    fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan> {
        let manager = self.0.as_ref();
        let chains = Chains::of(demand)?;
        if chains.is_trivial() {
            return manager.pack(demand, config);
        }
        let config_of_chains = chains.within(config);
        let plan = manager.pack(&chains.as_demand(demand)?, &config_of_chains)?;
        chains.expand(demand, config, &plan)
    }

    fn repack(
        &self,
        current: &PackingPlan,
        demand: &JobDemand,
        config: &PackingConfig,
    ) -> Result<PackingPlan> {
        let manager = self.0.as_ref();
        let chains = Chains::of(demand)?;
        if chains.is_trivial() {
            return manager.repack(current, demand, config);
        }
        let before = Chains::of(&current.demand())?.contract(current)?;
        let config_of_chains = chains.within(config);
        let plan = manager.repack(&before, &chains.as_demand(demand)?, &config_of_chains)?;
        chains.expand(demand, config, &plan)
    }
}

/// The chains of a job: the vertices of each, by its first.
struct Chains(BTreeMap<VertexName, Vec<VertexName>>);

impl Chains {
    fn of(demand: &JobDemand) -> Result<Self> {
        let mut chains: BTreeMap<VertexName, Vec<VertexName>> = BTreeMap::new();
        let mut counts: HashMap<VertexName, (&VertexName, u32)> = HashMap::new();
        for vertex in &demand.vertices {
            let head = head(vertex);
            let (first, count) = *counts
                .entry(head.clone())
                .or_insert((&vertex.name, vertex.parallelism));
            if count != vertex.parallelism {
                let what = format!(
                    "vertices {first:?} and {:?} of job {:?} hand records over within a chain, and can't have {count} and {} instances",
                    vertex.name, demand.job, vertex.parallelism
                );
                return Err(Error::new(ErrorCode::InvalidJob, what)
                    .hint("give all vertices of a chain the same number of instances"));
            }
            chains.entry(head).or_default().push(vertex.name.clone());
        }
        Ok(Chains(chains))
    }

    fn is_trivial(&self) -> bool {
        self.longest() == 1
    }

    fn longest(&self) -> usize {
        self.0.values().map(Vec::len).max().unwrap_or(1).max(1)
    }

    /// The demand with a vertex a chain, which takes what its vertices take together.
    fn as_demand(&self, demand: &JobDemand) -> Result<JobDemand> {
        let mut contracted = JobDemand {
            job: demand.job.clone(),
            vertices: Vec::new(),
        };
        let mut places: HashMap<VertexName, usize> = HashMap::new();
        for vertex in &demand.vertices {
            let head = head(vertex);
            let Some(place) = places.get(&head) else {
                places.insert(head.clone(), contracted.vertices.len());
                let mut first = vertex.clone();
                first.name = head;
                contracted.vertices.push(first);
                continue;
            };
            let chain = &mut contracted.vertices[*place];
            let sum = chain.resources.checked_add(vertex.resources);
            chain.resources = sum.unwrap_or(Resources::UNLIMITED);
        }
        Ok(contracted)
    }

    /// The configuration for packing chains instead of vertices.
    fn within(&self, config: &PackingConfig) -> PackingConfig {
        let mut config = config.clone();
        let longest = u32::try_from(self.longest()).unwrap_or(u32::MAX);
        config.limits.instances = config
            .limits
            .instances
            .map(|most| NonZeroU32::new(most.get() / longest).unwrap_or(NonZeroU32::MIN));
        config
    }

    /// A plan of vertices as one of chains.
    fn contract(&self, plan: &PackingPlan) -> Result<PackingPlan> {
        let demand = plan.demand();
        let mut placement = Placement::new();
        for container in plan.containers() {
            let mut here: Vec<InstanceId> = Vec::new();
            for (head, chain) in &self.0 {
                // Where the first of a chain's vertices is, the chain is.
                let first = chain.first().unwrap_or(head);
                let instances = container.instances.iter();
                let of_first = instances.filter(|instance| instance.vertex == *first);
                here.extend(of_first.map(|instance| InstanceId::new(head.clone(), instance.index)));
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

    /// A plan of chains as one of vertices.
    fn expand(
        &self,
        demand: &JobDemand,
        config: &PackingConfig,
        plan: &PackingPlan,
    ) -> Result<PackingPlan> {
        let mut placement = Placement::new();
        for container in plan.containers() {
            let of_chain = |instance: &InstanceId| {
                let chain = self.0.get(&instance.vertex).cloned().unwrap_or_default();
                let index = instance.index;
                chain
                    .into_iter()
                    .map(move |vertex| InstanceId { vertex, index })
            };
            let instances = container.instances.iter().flat_map(of_chain);
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

/// The name of the chain that a vertex is in; its own if it is in none.
fn head(vertex: &VertexDemand) -> VertexName {
    match vertex.chain() {
        Some(head) => VertexName::new(head.as_str()),
        None => vertex.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{ContainerLimits, MilliCores, ResourceManagers};

    use super::*;

    fn vertex(name: &str, count: u32, chain: Option<&str>, cpu: u64) -> VertexDemand {
        let each = Resources {
            cpu: MilliCores(cpu),
            ..Resources::ZERO
        };
        let vertex = VertexDemand::new(name, count, each);
        match chain {
            Some(head) => vertex.attribute(CHAIN_ATTRIBUTE, head),
            None => vertex,
        }
    }

    /// A job with a chain of two, one vertex before it and one behind.
    fn job(of_chain: u32, others: u32) -> JobDemand {
        JobDemand::new("job")
            .vertex(vertex("odd", others, None, 100))
            .vertex(vertex("lines", of_chain, Some("lines"), 300))
            .vertex(vertex("middle", others, None, 200))
            .vertex(vertex("words", of_chain, Some("lines"), 400))
    }

    fn is_together(plan: &PackingPlan, count: u32) -> bool {
        (0..count).all(|index| {
            let at = |name: &str| plan.container_of(&InstanceId::new(name, index));
            at("lines") == at("words")
        })
    }

    proptest! {
        #[test]
        fn chains_stay_together_under_every_policy_before_and_after_a_change(
            before in (1..6u32, 1..6u32),
            after in (1..6u32, 1..6u32),
            containers in 1..5u32,
            most in proptest::option::of(2..9u32),
        ) {
            let cpu = Resources { cpu: MilliCores(1500), ..Resources::UNLIMITED };
            let mut config = PackingConfig {
                limits: ContainerLimits::of(cpu),
                ..PackingConfig::default()
            };
            config.limits.instances = most.and_then(NonZeroU32::new);
            let managers = ResourceManagers::builtin();
            for name in ["round-robin", "binpack", "compliant-round-robin"] {
                let mut config = config.clone();
                if name == "round-robin" {
                    config.limits = ContainerLimits::default();
                    config.containers = NonZeroU32::new(containers);
                }
                let manager = managers.get(name).unwrap();
                let plan = manager.pack(&job(before.0, before.1), &config).unwrap();
                prop_assert!(is_together(&plan, before.0), "{name}: {plan}");
                let next = manager.repack(&plan, &job(after.0, after.1), &config).unwrap();
                prop_assert!(is_together(&next, after.0), "{name}: {next}");
            }
        }
    }

    #[test]
    fn a_vertex_takes_its_chain_along_when_it_gets_more_instances() {
        let demand = job(2, 1).with_parallelism("words", 3).unwrap();
        let counts: Vec<u32> = demand.vertices.iter().map(|v| v.parallelism).collect();
        assert_eq!(counts, [1, 3, 1, 3]);
    }

    #[test]
    fn a_chain_whose_vertices_differ_in_number_is_refused_and_both_are_named() {
        let mut demand = job(2, 1);
        demand.vertices[3].parallelism = 3;
        let manager = ResourceManagers::builtin().get("round-robin").unwrap();
        let error = manager
            .pack(&demand, &PackingConfig::default())
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        let text = error.to_string();
        assert!(
            text.contains("\"lines\"") && text.contains("\"words\""),
            "{text}"
        );
    }
}
