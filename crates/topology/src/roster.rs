//! How many instances each component has, now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The components of a topology and how many instances each has at the moment, shared by all instances.
///
/// The numbers change while a topology runs on a cluster and is rescaled. Whoever derives something from them keeps the version that
/// it was derived from, and looks at [`version`](Roster::version) once a chunk: one load.
#[derive(Debug)]
pub(crate) struct Roster {
    components: Box<[(Arc<str>, AtomicU32)]>,
    version: AtomicU64,
}

impl Roster {
    /// Of these components, in the order of the topology.
    pub(crate) fn new(components: impl IntoIterator<Item = (Arc<str>, u32)>) -> Self {
        let components = components.into_iter();
        Roster {
            components: components
                .map(|(name, instances)| (name, AtomicU32::new(instances)))
                .collect(),
            version: AtomicU64::new(0),
        }
    }

    /// How often a number has changed.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// How many instances the component at this place has.
    pub(crate) fn instances(&self, component: usize) -> u32 {
        let found = self.components.get(component);
        found.map_or(0, |(_, instances)| instances.load(Ordering::Relaxed))
    }

    /// How many instances the component of this name has, if there is one.
    pub(crate) fn instances_of(&self, component: &str) -> Option<u32> {
        let found = self
            .components
            .iter()
            .find(|(name, _)| **name == *component);
        found.map(|(_, instances)| instances.load(Ordering::Relaxed))
    }

    /// The component at this place has so many instances from now on.
    pub(crate) fn rescale(&self, component: usize, instances: u32) {
        if let Some((_, before)) = self.components.get(component)
            && before.swap(instances, Ordering::Relaxed) != instances
        {
            // Behind the number: who sees the new version sees the number as well.
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}
