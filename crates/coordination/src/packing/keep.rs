//! Repacking: what stays where it is, and what needs a place.

use std::collections::HashSet;

use crate::packing::PackingPlan;
use crate::packing::bins::{Bin, Slot, Space};

/// A running job's containers with what may stay in them, and the instances that need a place.
pub(crate) struct Kept {
    /// In the order of the current plan; some may be empty.
    pub(crate) bins: Vec<Bin>,
    /// In the order of the demand: vertex by vertex, then by index.
    pub(crate) homeless: Vec<Slot>,
}

/// Leaves every instance where it is that is still asked for and still fits.
///
/// Of a vertex that shrinks the highest indices go, because instances are numbered without gaps. When a container has become
/// too small for what it holds (instances now ask for more, or the limit is lower), the smallest stay, which with one resource is as
/// many as can; none is put out that would fit with those that stayed.
pub(crate) fn keep(space: &Space<'_>, current: &PackingPlan) -> Kept {
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
    Kept {
        homeless: homeless.collect(),
        bins,
    }
}
