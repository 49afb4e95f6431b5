//! First step of repacking: determines the instances that stay in their containers, and those to be
//! placed.

use std::collections::HashSet;

use crate::packing::PackingPlan;
use crate::packing::bins::{Bin, Slot, Space};

/// The containers of a running job with the instances that stay, and the instances to be placed.
pub(crate) struct RetainedPlan {
    /// The containers in the order of the current plan; some may be empty.
    pub(crate) bins: Vec<Bin>,
    /// The instances to be placed, in the order of the demand: by vertex, then by index.
    pub(crate) homeless: Vec<Slot>,
}

/// Retains in its container every instance of `current` that is still required and still fits.
///
/// If a vertex shrinks, the highest indices are removed, since instances are numbered without gaps.
/// If a container has become too small for its instances, the smallest ones stay; with a single
/// resource, this maximises their number. No instance is removed that would fit together with the
/// staying ones.
pub(crate) fn keep(space: &Space<'_>, current: &PackingPlan) -> RetainedPlan {
    let positions = space.positions();
    let mut placed: HashSet<Slot> = HashSet::new();
    let mut bins = Vec::with_capacity(current.containers().len());
    for container in current.containers() {
        let mut staying: Vec<Slot> = container
            .instances
            .iter()
            .filter_map(|instance| {
                let vertex = *positions.get(&instance.vertex)?;
                let wanted = instance.index < space.demand().vertices[vertex].parallelism;
                wanted.then_some(Slot {
                    vertex,
                    index: instance.index,
                })
            })
            .collect();
        staying.sort_by_cached_key(|slot| (space.share(slot.vertex), *slot));
        let mut bin = Bin::new(container.id);
        placed.extend(staying.into_iter().filter(|slot| bin.put(space, *slot)));
        bins.push(bin);
    }
    let homeless = space.slots().filter(|slot| !placed.contains(slot));
    RetainedPlan {
        homeless: homeless.collect(),
        bins,
    }
}
