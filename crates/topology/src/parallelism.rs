//! The present parallelism of each component.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The components of a topology with their present parallelism, shared by all instances.
///
/// The parallelism changes when a topology is rescaled on a cluster. Users of derived values store
/// the [`version`](ComponentParallelism::version) and compare it once per chunk, which costs one
/// load.
#[derive(Debug)]
pub(crate) struct ComponentParallelism {
    components: Box<[(Arc<str>, AtomicU32)]>,
    version: AtomicU64,
}

impl ComponentParallelism {
    /// Creates the table from the names and parallelism of components, in the order of the
    /// topology.
    pub(crate) fn new(components: impl IntoIterator<Item = (Arc<str>, u32)>) -> Self {
        let components = components.into_iter();
        ComponentParallelism {
            components: components
                .map(|(name, instances)| (name, AtomicU32::new(instances)))
                .collect(),
            version: AtomicU64::new(0),
        }
    }

    /// Returns the number of changes so far.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the parallelism of the component at this position.
    pub(crate) fn instances(&self, component: usize) -> u32 {
        let found = self.components.get(component);
        found.map_or(0, |(_, instances)| instances.load(Ordering::Relaxed))
    }

    /// Returns the parallelism of the component of this name, if it exists.
    pub(crate) fn instances_of(&self, component: &str) -> Option<u32> {
        let found = self
            .components
            .iter()
            .find(|(name, _)| **name == *component);
        found.map(|(_, instances)| instances.load(Ordering::Relaxed))
    }

    /// Returns the parallelism of all components.
    pub(crate) fn all(&self) -> BTreeMap<String, u32> {
        let components = self.components.iter();
        components
            .map(|(name, instances)| (name.to_string(), instances.load(Ordering::Relaxed)))
            .collect()
    }

    /// Sets the parallelism of the named components; other names are ignored.
    pub(crate) fn rescale_named(&self, parallelism: &BTreeMap<String, u32>) {
        for (place, (name, _)) in self.components.iter().enumerate() {
            if let Some(instances) = parallelism.get(&**name) {
                self.rescale(place, *instances);
            }
        }
    }

    /// Sets the parallelism of the component at this position.
    pub(crate) fn rescale(&self, component: usize, instances: u32) {
        if let Some((_, before)) = self.components.get(component)
            && before.swap(instances, Ordering::Relaxed) != instances
        {
            // Written after the parallelism: a reader of the new version also reads the new number.
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}
