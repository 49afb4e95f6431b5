//! Packing plans: containers with their instances and resources.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ardea_core::Result;
use serde::{Deserialize, Serialize};

use crate::packing::{
    ContainerId, InstanceId, JobDemand, PackingConfig, PackingError, Resources, VertexDemand,
    VertexName,
};

/// The instances of each container, as chosen by a policy.
pub type Placement = BTreeMap<ContainerId, Vec<InstanceId>>;

/// A packing plan: assigns every instance of a job to exactly one container.
///
/// A plan is immutable. The metadata store contains its serialised form, which is validated when it
/// is read. The displayed form is a table. Empty fields are serialised too, since some formats have
/// no field names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(!try_from, deny_unknown_fields))]
#[serde(try_from = "Unchecked")]
pub struct PackingPlan {
    job: String,
    vertices: Vec<VertexDemand>,
    containers: Vec<ContainerPlan>,
}

/// A container of a plan, with its instances and resources.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct ContainerPlan {
    /// The container.
    #[cfg_attr(feature = "schema", schemars(with = "u32"))]
    pub id: ContainerId,
    /// The required resources, including padding.
    pub required: Resources,
    /// The instances, sorted; in JSON their indices by vertex.
    #[serde(with = "crate::packing::by_vertex")]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, Vec<u32>>"))]
    pub instances: Vec<InstanceId>,
    /// Further attributes for the scheduler, set by a user's policy.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// A deserialised plan before its validation.
#[derive(Deserialize)]
struct Unchecked {
    job: String,
    vertices: Vec<VertexDemand>,
    containers: Vec<ContainerPlan>,
}

impl TryFrom<Unchecked> for PackingPlan {
    type Error = PackingError;

    fn try_from(plan: Unchecked) -> Result<Self, PackingError> {
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
    /// Creates the plan for a placement of the demand's instances, and validates it.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BrokenPlan`](ardea_core::ErrorCode::BrokenPlan) if an instance of the demand is
    /// missing, unknown or placed twice, or a container exceeds its limits.
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
    ) -> Result<PackingPlan, PackingError> {
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
                return Err(PackingError::TooManyInContainer {
                    container: id,
                    instances: instances.len(),
                    most: limits.instances.map_or(u32::MAX, |most| most.get()),
                });
            }
            let mut used = Some(Resources::ZERO);
            for instance in &instances {
                let size = sizes.get(&instance.vertex);
                let size = size.ok_or_else(|| PackingError::Unknown(instance.clone()))?;
                used = used.and_then(|used| used.checked_add(*size));
            }
            let required = used.and_then(|used| config.padding.required(used));
            let required = required.unwrap_or(Resources::UNLIMITED);
            if !required.fits_in(&limits.resources) {
                return Err(PackingError::OverLimit {
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

    /// Sets an attribute of a container for the scheduler. Has no effect if the plan has no such
    /// container.
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

    /// Returns the plan with all containers of the same size, for schedulers that require this: the
    /// maximum of each resource over all containers. The result is within the limits if this plan
    /// is.
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

    /// Returns the plan with new containers in place of those in `replaced`, and the new number of
    /// each replaced container. The new containers have the same instances, resources and
    /// attributes, and numbers above all others. Containers that are not in the plan are ignored.
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

    /// Returns the job's name.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// Returns the demand for which the plan was computed.
    pub fn demand(&self) -> JobDemand {
        JobDemand {
            job: self.job.clone(),
            vertices: self.vertices.clone(),
        }
    }

    /// Returns the containers, by number.
    pub fn containers(&self) -> &[ContainerPlan] {
        &self.containers
    }

    /// Returns a container, if it is in the plan.
    pub fn container(&self, id: ContainerId) -> Option<&ContainerPlan> {
        let at = self.containers.binary_search_by_key(&id, |c| c.id).ok()?;
        Some(&self.containers[at])
    }

    /// Returns the container of an instance, if the plan has the instance. Searches all containers.
    pub fn container_of(&self, instance: &InstanceId) -> Option<ContainerId> {
        let holds =
            |container: &&ContainerPlan| container.instances.binary_search(instance).is_ok();
        self.containers.iter().find(holds).map(|found| found.id)
    }

    /// Returns the number of instances.
    pub fn instance_count(&self) -> usize {
        self.containers.iter().map(|c| c.instances.len()).sum()
    }
}

/// Checks that the containers are in ascending order, unique and not empty, and that their
/// instances are sorted.
fn check_containers(containers: &[ContainerPlan]) -> Result<(), PackingError> {
    for pair in containers.windows(2) {
        if pair[0].id >= pair[1].id {
            return Err(PackingError::BadContainer(pair[1].id));
        }
    }
    for container in containers {
        if container.instances.is_empty() {
            return Err(PackingError::BadContainer(container.id));
        }
        if let Some(pair) = container
            .instances
            .windows(2)
            .find(|pair| pair[0] >= pair[1])
        {
            return Err(PackingError::PlacedTwice(pair[1].clone()));
        }
    }
    Ok(())
}

/// Checks that every instance of the demand is placed exactly once, and that the plan has no other
/// instances.
fn check_instances(demand: &JobDemand, containers: &[ContainerPlan]) -> Result<(), PackingError> {
    let mut placed: HashMap<&VertexName, Vec<bool>> = demand
        .vertices
        .iter()
        .map(|vertex| (&vertex.name, vec![false; vertex.parallelism as usize]))
        .collect();
    for instance in containers.iter().flat_map(|container| &container.instances) {
        let place = placed
            .get_mut(&instance.vertex)
            .and_then(|placed| placed.get_mut(instance.index as usize))
            .ok_or_else(|| PackingError::Unknown(instance.clone()))?;
        if std::mem::replace(place, true) {
            return Err(PackingError::PlacedTwice(instance.clone()));
        }
    }
    for vertex in &demand.vertices {
        let placed = &placed[&vertex.name];
        if let Some(index) = placed.iter().position(|placed| !placed) {
            let missing = InstanceId::new(vertex.name.clone(), index as u32);
            return Err(PackingError::Missing(missing));
        }
    }
    Ok(())
}
