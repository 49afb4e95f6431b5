//! Containers while they are filled during packing.

use std::collections::HashMap;

use crate::packing::{
    ContainerId, InstanceId, JobDemand, PackingConfig, PackingError, Placement, Resources,
    VertexName,
};

/// An instance, identified by the position of its vertex in the demand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Slot {
    pub(crate) vertex: usize,
    pub(crate) index: u32,
}

/// The demand of a job, and the resources that a container offers to its instances.
pub(crate) struct Space<'a> {
    demand: &'a JobDemand,
    offered: Resources,
    most_instances: usize,
}

impl<'a> Space<'a> {
    /// Checks the demand, and that each instance fits into an empty container.
    pub(crate) fn new(demand: &'a JobDemand, config: &PackingConfig) -> Result<Self, PackingError> {
        demand.check()?;
        let limit = config.limits.resources;
        let offered = config.padding.offered(&limit)?;
        for vertex in &demand.vertices {
            if let Some(resource) = vertex.resources.first_over(&offered) {
                return Err(PackingError::InstanceTooLarge {
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

    /// Returns the share of a container that an instance of the vertex takes. Instances are sorted
    /// by this share.
    pub(crate) fn share(&self, vertex: usize) -> u128 {
        self.size(vertex).dominant_share(&self.offered)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.demand
            .vertices
            .iter()
            .enumerate()
            .flat_map(|(vertex, demand)| {
                (0..demand.parallelism).map(move |index| Slot { vertex, index })
            })
    }

    /// Returns the position of each vertex in the demand, by name.
    pub(crate) fn positions(&self) -> HashMap<&'a VertexName, usize> {
        let names = self.demand.vertices.iter().map(|vertex| &vertex.name);
        names
            .enumerate()
            .map(|(position, name)| (name, position))
            .collect()
    }

    /// Returns a lower bound of the number of containers, from the total demand and the size of a
    /// container.
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
        // The result is at most the number of instances, since each instance fits into a container.
        by_resource.max().unwrap_or(0).max(by_count).max(1) as usize
    }

    /// Returns the error that the container `bin` cannot take another instance of the vertex, if
    /// the job has this number of `containers`.
    pub(crate) fn too_few(&self, bin: &Bin, vertex: usize, containers: usize) -> PackingError {
        PackingError::ContainersTooFew {
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

/// A container that is being filled. It never exceeds its limits.
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

    /// Adds the instance `slot` if the container has room. Returns true if the instance was added.
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

    pub(crate) fn take(&mut self, space: &Space<'_>, slot: Slot) {
        let mut left = std::mem::take(&mut self.slots);
        left.retain(|other| *other != slot);
        self.used = Resources::ZERO;
        for slot in left {
            // Any subset of instances that fitted also fits.
            self.put(space, slot);
        }
    }

    /// Returns true if the container has room for another instance of the vertex.
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

/// Creates `count` empty containers, numbered from one.
pub(crate) fn empty_bins(count: usize) -> Vec<Bin> {
    (1..=count as u32)
        .map(|id| Bin::new(ContainerId(id)))
        .collect()
}

/// Converts filled containers to a placement of instance ids, without empty containers.
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
