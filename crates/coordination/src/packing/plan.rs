//! Packing plans: containers, the instances in each, and what each needs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ardea_core::Result;
use serde::{Deserialize, Serialize};

use crate::packing::{
    ContainerId, InstanceId, JobDemand, PackingConfig, Refusal, Resources, VertexDemand, VertexName,
};

/// Which instances a policy puts into which container.
pub type Placement = BTreeMap<ContainerId, Vec<InstanceId>>;

/// Which instance runs in which container: every instance of the job once.
///
/// Immutable; a change is another plan. Serialised, it is the form in which the state manager keeps it; what is read back is
/// checked again. Displayed, it is a table. (Here as in all that travels, nothing is left out when it is empty: formats that don't
/// name fields could not be read then.)
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct PackingPlan {
    job: String,
    vertices: Vec<VertexDemand>,
    containers: Vec<ContainerPlan>,
}

/// A container of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContainerPlan {
    /// The container.
    pub id: ContainerId,
    /// What it needs, padding included.
    pub required: Resources,
    /// What it runs, sorted.
    #[serde(with = "crate::packing::by_vertex")]
    pub instances: Vec<InstanceId>,
    /// Anything else that a policy of one's own wants the scheduler to know of this container.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// A plan as somebody wrote it down.
#[derive(Deserialize)]
struct Unchecked {
    job: String,
    vertices: Vec<VertexDemand>,
    containers: Vec<ContainerPlan>,
}

impl TryFrom<Unchecked> for PackingPlan {
    type Error = Refusal;

    fn try_from(plan: Unchecked) -> Result<Self, Refusal> {
        let demand = JobDemand {
            job: plan.job,
            vertices: plan.vertices,
        };
        demand.check()?;
        check_containers(&plan.containers)?;
        check_instances(&demand, &plan.containers)?;
        Ok(PackingPlan {
            job: demand.job,
            vertices: demand.vertices,
            containers: plan.containers,
        })
    }
}

impl PackingPlan {
    /// The plan that places the instances so.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BrokenPlan`](ardea_core::ErrorCode::BrokenPlan) when an instance of the demand is missing, unknown or
    /// placed twice, or a container is over its limits.
    pub fn of(
        demand: &JobDemand,
        config: &PackingConfig,
        placement: Placement,
    ) -> Result<PackingPlan> {
        Self::checked(demand, config, placement).map_err(|refusal| refusal.into_error(&demand.job))
    }

    fn checked(
        demand: &JobDemand,
        config: &PackingConfig,
        placement: Placement,
    ) -> Result<PackingPlan, Refusal> {
        demand.check()?;
        let sizes: HashMap<&VertexName, Resources> = demand
            .vertices
            .iter()
            .map(|vertex| (&vertex.name, vertex.resources))
            .collect();
        let limits = &config.limits;
        let mut containers = Vec::with_capacity(placement.len());
        for (id, mut instances) in placement {
            if instances.len() > limits.most_instances() {
                return Err(Refusal::TooManyInContainer {
                    container: id,
                    instances: instances.len(),
                    most: limits.instances.map_or(u32::MAX, |most| most.get()),
                });
            }
            let mut used = Some(Resources::ZERO);
            for instance in &instances {
                let size = sizes.get(&instance.vertex);
                let size = size.ok_or_else(|| Refusal::Unknown(instance.clone()))?;
                used = used.and_then(|used| used.checked_add(*size));
            }
            let required = used.and_then(|used| config.padding.required(used));
            let required = required.unwrap_or(Resources::UNLIMITED);
            if !required.fits_in(&limits.resources) {
                return Err(Refusal::OverLimit {
                    container: id,
                    required,
                    limit: limits.resources,
                });
            }
            instances.sort_unstable();
            containers.push(ContainerPlan {
                id,
                required,
                instances,
                attributes: BTreeMap::new(),
            });
        }
        check_containers(&containers)?;
        check_instances(demand, &containers)?;
        Ok(PackingPlan {
            job: demand.job.clone(),
            vertices: demand.vertices.clone(),
            containers,
        })
    }

    /// The plan with something that the scheduler should know of a container; nothing changes if there is no such container.
    pub fn with_attribute(
        mut self,
        container: ContainerId,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        let found = self.containers.iter_mut().find(|c| c.id == container);
        if let Some(container) = found {
            container.attributes.insert(name.into(), value.into());
        }
        self
    }

    /// The plan with containers of one size, the largest that one of them needs in each resource: for schedulers that know
    /// one size only. Within the limits if the plan is.
    pub fn homogeneous(mut self) -> Self {
        let largest = self
            .containers
            .iter()
            .map(|container| container.required)
            .fold(Resources::ZERO, Resources::max_of_each);
        for container in &mut self.containers {
            container.required = largest;
        }
        self
    }

    /// The plan with other containers in the place of these: the same instances, needs and attributes under numbers above all others; and what
    /// each of these has become. One that the plan hasn't is passed over.
    pub fn with_new_containers(
        &self,
        replaced: impl IntoIterator<Item = ContainerId>,
    ) -> (PackingPlan, BTreeMap<ContainerId, ContainerId>) {
        let highest = self.containers.iter().map(|container| container.id.0).max();
        let there = |id: &ContainerId| self.container(*id).is_some();
        let replaced: BTreeSet<ContainerId> = replaced.into_iter().filter(there).collect();
        let fresh = (highest.unwrap_or(0)..u32::MAX).map(|below| ContainerId(below + 1));
        let became: BTreeMap<_, _> = replaced.into_iter().zip(fresh).collect();
        let mut next = self.clone();
        for container in &mut next.containers {
            container.id = became.get(&container.id).copied().unwrap_or(container.id);
        }
        next.containers.sort_by_key(|container| container.id);
        (next, became)
    }

    /// The job's name.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// The demand that the plan was made for.
    pub fn demand(&self) -> JobDemand {
        JobDemand {
            job: self.job.clone(),
            vertices: self.vertices.clone(),
        }
    }

    /// The containers, by number.
    pub fn containers(&self) -> &[ContainerPlan] {
        &self.containers
    }

    /// One of the containers, if it is in the plan.
    pub fn container(&self, id: ContainerId) -> Option<&ContainerPlan> {
        let at = self.containers.binary_search_by_key(&id, |c| c.id).ok()?;
        Some(&self.containers[at])
    }

    /// Where an instance runs; looks through all containers.
    pub fn container_of(&self, instance: &InstanceId) -> Option<ContainerId> {
        let holds =
            |container: &&ContainerPlan| container.instances.binary_search(instance).is_ok();
        self.containers.iter().find(holds).map(|found| found.id)
    }

    /// The number of instances.
    pub fn instance_count(&self) -> usize {
        self.containers.iter().map(|c| c.instances.len()).sum()
    }
}

/// In ascending order, each once, none empty, the instances of each sorted.
fn check_containers(containers: &[ContainerPlan]) -> Result<(), Refusal> {
    for pair in containers.windows(2) {
        if pair[0].id >= pair[1].id {
            return Err(Refusal::BadContainer(pair[1].id));
        }
    }
    for container in containers {
        if container.instances.is_empty() {
            return Err(Refusal::BadContainer(container.id));
        }
        if let Some(pair) = container
            .instances
            .windows(2)
            .find(|pair| pair[0] >= pair[1])
        {
            return Err(Refusal::PlacedTwice(pair[1].clone()));
        }
    }
    Ok(())
}

/// Every instance once, and no other.
fn check_instances(demand: &JobDemand, containers: &[ContainerPlan]) -> Result<(), Refusal> {
    let mut placed: HashMap<&VertexName, Vec<bool>> = demand
        .vertices
        .iter()
        .map(|vertex| (&vertex.name, vec![false; vertex.parallelism as usize]))
        .collect();
    for instance in containers.iter().flat_map(|container| &container.instances) {
        let place = placed
            .get_mut(&instance.vertex)
            .and_then(|placed| placed.get_mut(instance.index as usize))
            .ok_or_else(|| Refusal::Unknown(instance.clone()))?;
        if std::mem::replace(place, true) {
            return Err(Refusal::PlacedTwice(instance.clone()));
        }
    }
    for vertex in &demand.vertices {
        let placed = &placed[&vertex.name];
        if let Some(index) = placed.iter().position(|placed| !placed) {
            let missing = InstanceId::new(vertex.name.clone(), index as u32);
            return Err(Refusal::Missing(missing));
        }
    }
    Ok(())
}
