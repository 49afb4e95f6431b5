//! Placing instances into containers: balanced, or in few.

use crate::packing::bins::{Bin, Slot, Space};
use crate::packing::{ContainerId, Refusal};

/// Places each instance where the fewest instances are, among the containers that have room for it; of several, where its
/// vertex has the fewest, and then the lowest number. Where there is no room, a container is added.
///
/// `O(instances · containers)`.
pub(crate) fn spread(
    space: &Space<'_>,
    bins: &mut Vec<Bin>,
    homeless: &[Slot],
) -> Result<(), Refusal> {
    for of_one_vertex in homeless.chunk_by(|a, b| a.vertex == b.vertex) {
        let vertex = of_one_vertex[0].vertex;
        let mut of_vertex: Vec<usize> = bins
            .iter()
            .map(|bin| bin.slots.iter().filter(|s| s.vertex == vertex).count())
            .collect();
        for slot in of_one_vertex {
            let best = (0..bins.len())
                .filter(|at| bins[*at].has_room(space, vertex))
                .min_by_key(|at| (bins[*at].slots.len(), of_vertex[*at], bins[*at].id));
            let at = best.unwrap_or_else(|| {
                open(bins);
                of_vertex.push(0);
                bins.len() - 1
            });
            place(space, bins, at, *slot)?;
            of_vertex[at] += 1;
        }
    }
    Ok(())
}

/// First fit decreasing: the largest instances first, each into the first container that has room; where there is none, a
/// container is added.
///
/// With one resource, at most 11/9 of the fewest possible containers and 6/9 of one more (Dósa, "The tight bound of first fit
/// decreasing bin-packing algorithm", ESCAPE 2007). "Large" is the largest share that an instance takes of a container's cpu,
/// memory or disk. `O(instances + vertices · containers)` on top of sorting: no container that had no room for an instance has
/// room for the next of the same size.
pub(crate) fn first_fit_decreasing(
    space: &Space<'_>,
    bins: &mut Vec<Bin>,
    homeless: &[Slot],
) -> Result<(), Refusal> {
    let mut runs: Vec<&[Slot]> = homeless.chunk_by(|a, b| a.vertex == b.vertex).collect();
    runs.sort_by_key(|run| std::cmp::Reverse(space.share(run[0].vertex)));
    for run in runs {
        let mut at = 0;
        for slot in run {
            while at < bins.len() && !bins[at].has_room(space, slot.vertex) {
                at += 1;
            }
            if at == bins.len() {
                open(bins);
            }
            place(space, bins, at, *slot)?;
        }
    }
    Ok(())
}

fn place(space: &Space<'_>, bins: &mut [Bin], at: usize, slot: Slot) -> Result<(), Refusal> {
    let count = bins.len();
    let bin = &mut bins[at];
    if bin.put(space, slot) {
        return Ok(());
    }
    Err(space.too_few(bin, slot.vertex, count))
}

/// Adds a container, numbered one above the highest.
pub(crate) fn open(bins: &mut Vec<Bin>) {
    let highest = bins.iter().map(|bin| bin.id.0).max().unwrap_or(0);
    bins.push(Bin::new(ContainerId(highest + 1)));
}
