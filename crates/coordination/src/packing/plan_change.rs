//! The difference between two packing plans.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::packing::{ContainerId, InstanceId, PackingPlan};

/// The changes from one packing plan to the next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlanChange {
    /// Instances to start, with their containers.
    pub started: BTreeMap<InstanceId, ContainerId>,
    /// Instances to stop, with their containers.
    pub stopped: BTreeMap<InstanceId, ContainerId>,
    /// Instances that move from one container to another.
    pub moved: BTreeMap<InstanceId, Move>,
    /// Containers to start.
    pub containers_added: BTreeSet<ContainerId>,
    /// Containers to stop.
    pub containers_removed: BTreeSet<ContainerId>,
    /// Containers that stay, but with other resources.
    pub containers_resized: BTreeSet<ContainerId>,
}

/// The move of an instance from one container to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// The old container.
    pub from: ContainerId,
    /// The new container.
    pub to: ContainerId,
}

impl PlanChange {
    /// Returns true if the two plans do not differ.
    pub fn is_empty(&self) -> bool {
        *self == PlanChange::default()
    }
}

impl PackingPlan {
    /// Returns the changes from this plan to the next one.
    pub fn change_to(&self, next: &PackingPlan) -> PlanChange {
        let mut change = PlanChange::default();
        let mut before: HashMap<&InstanceId, ContainerId> = places(self).collect();
        for (instance, to) in places(next) {
            match before.remove(instance) {
                None => {
                    change.started.insert(instance.clone(), to);
                }
                Some(from) if from != to => {
                    change.moved.insert(instance.clone(), Move { from, to });
                }
                Some(_) => {}
            }
        }
        let gone = before.into_iter().map(|(id, from)| (id.clone(), from));
        change.stopped = gone.collect();
        for container in next.containers() {
            match self.container(container.id) {
                None => {
                    change.containers_added.insert(container.id);
                }
                Some(old) if old.required != container.required => {
                    change.containers_resized.insert(container.id);
                }
                Some(_) => {}
            }
        }
        let ids = self.containers().iter().map(|container| container.id);
        change.containers_removed = ids.filter(|id| next.container(*id).is_none()).collect();
        change
    }
}

fn places(plan: &PackingPlan) -> impl Iterator<Item = (&InstanceId, ContainerId)> {
    plan.containers().iter().flat_map(|container| {
        let instances = container.instances.iter();
        instances.map(|instance| (instance, container.id))
    })
}
