//! Containers while they are being filled.

use std::collections::HashMap;

use crate::packing::{
    ContainerId, InstanceId, JobDemand, PackingConfig, Placement, Refusal, Resources, VertexName,
};

/// An instance, by the position of its vertex in the demand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Slot {
    pub(crate) vertex: usize,
    pub(crate) index: u32,
}

/// What is asked for, and what a container offers to its instances.
pub(crate) struct Space<'a> {
    demand: &'a JobDemand,
    offered: Resources,
    most_instances: usize,
}

impl<'a> Space<'a> {
    /// Refuses a demand that makes no sense, and one with an instance that no container can hold.
    pub(crate) fn new(demand: &'a JobDemand, config: &PackingConfig) -> Result<Self, Refusal> {
        demand.check()?;
        let limit = config.limits.resources;
        let offered = config.padding.offered(&limit)?;
        for vertex in &demand.vertices {
            if let Some(resource) = vertex.resources.first_over(&offered) {
                return Err(Refusal::InstanceTooLarge {
                    instance: InstanceId::new(vertex.name.clone(), 0),
                    resource,
                    wanted: vertex.resources.amount(resource),
                    offered: offered.amount(resource),
                    limit: limit.amount(resource),
                });
            }
        }
        Ok(Space {
            demand,
            offered,
            most_instances: config.limits.most_instances(),
        })
    }

    pub(crate) fn demand(&self) -> &JobDemand {
        self.demand
    }

    pub(crate) fn size(&self, vertex: usize) -> Resources {
        self.demand.vertices[vertex].resources
    }

    /// The share of a container that an instance of the vertex takes: the measure of "decreasing".
    pub(crate) fn share(&self, vertex: usize) -> u128 {
        self.size(vertex).dominant_share(&self.offered)
    }

    /// All instances, vertex by vertex.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.demand
            .vertices
            .iter()
            .enumerate()
            .flat_map(|(vertex, demand)| {
                (0..demand.parallelism).map(move |index| Slot { vertex, index })
            })
    }

    /// The position of each vertex.
    pub(crate) fn positions(&self) -> HashMap<&'a VertexName, usize> {
        let names = self.demand.vertices.iter().map(|vertex| &vertex.name);
        names
            .enumerate()
            .map(|(position, name)| (name, position))
            .collect()
    }

    /// No fewer containers than this will do: what is asked for by what a container offers.
    pub(crate) fn least_containers(&self) -> usize {
        let by_resource = crate::packing::Resource::ALL.into_iter().map(|of| {
            let vertices = self.demand.vertices.iter();
            let wanted: u128 = vertices
                .map(|v| u128::from(v.parallelism) * u128::from(v.resources.amount(of)))
                .sum();
            wanted.div_ceil(u128::from(self.offered.amount(of).max(1)))
        });
        let instances = self.demand.instance_count() as u128;
        let by_count = instances.div_ceil(self.most_instances as u128);
        // Not above the number of instances: each of them fits into a container.
        by_resource.max().unwrap_or(0).max(by_count).max(1) as usize
    }

    /// Why this container can't take another instance of the vertex, when there are so many containers.
    pub(crate) fn too_few(&self, bin: &Bin, vertex: usize, containers: usize) -> Refusal {
        Refusal::ContainersTooFew {
            container: bin.id,
            containers: containers as u32,
            instances: bin.slots.len() + 1,
            used: bin
                .used
                .checked_add(self.size(vertex))
                .unwrap_or(Resources::UNLIMITED),
            offered: self.offered,
            most_instances: u32::try_from(self.most_instances).ok(),
        }
    }
}

/// A container that is being filled; never over what it offers.
#[derive(Clone, Debug)]
pub(crate) struct Bin {
    pub(crate) id: ContainerId,
    pub(crate) slots: Vec<Slot>,
    used: Resources,
}

impl Bin {
    pub(crate) fn new(id: ContainerId) -> Self {
        Bin {
            id,
            slots: Vec::new(),
            used: Resources::ZERO,
        }
    }

    /// Puts the instance in, if there is room.
    pub(crate) fn put(&mut self, space: &Space<'_>, slot: Slot) -> bool {
        match self.used_with(space, slot.vertex) {
            Some(used) => {
                self.used = used;
                self.slots.push(slot);
                true
            }
            None => false,
        }
    }

    /// Takes an instance out.
    pub(crate) fn take(&mut self, space: &Space<'_>, slot: Slot) {
        let mut left = std::mem::take(&mut self.slots);
        left.retain(|other| *other != slot);
        self.used = Resources::ZERO;
        for slot in left {
            // What fitted together with more does so now.
            self.put(space, slot);
        }
    }

    /// Whether there is room for another instance of the vertex.
    pub(crate) fn has_room(&self, space: &Space<'_>, vertex: usize) -> bool {
        self.used_with(space, vertex).is_some()
    }

    fn used_with(&self, space: &Space<'_>, vertex: usize) -> Option<Resources> {
        if self.slots.len() >= space.most_instances {
            return None;
        }
        let used = self.used.checked_add(space.size(vertex))?;
        used.fits_in(&space.offered).then_some(used)
    }
}

/// So many empty containers, numbered from one.
pub(crate) fn empty_bins(count: usize) -> Vec<Bin> {
    (1..=count as u32)
        .map(|id| Bin::new(ContainerId(id)))
        .collect()
}

/// What is in the containers, by the names of instances; empty ones are left out.
pub(crate) fn placement(space: &Space<'_>, bins: Vec<Bin>) -> Placement {
    let vertices = &space.demand.vertices;
    bins.into_iter()
        .filter(|bin| !bin.slots.is_empty())
        .map(|bin| {
            let instances = bin.slots.iter().map(|slot| InstanceId {
                vertex: vertices[slot.vertex].name.clone(),
                index: slot.index,
            });
            (bin.id, instances.collect())
        })
        .collect()
}
