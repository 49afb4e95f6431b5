//! Placement of instances into containers: balanced, or by first fit decreasing.

use crate::packing::bins::{Bin, Slot, Space};
use crate::packing::{ContainerId, PackingError};

/// Places the instances `homeless` into `bins`. Each goes into the container with the fewest
/// instances, among those with room for it. Ties are resolved by the fewest instances of the same
/// vertex, then by the lowest container number. If no container has room, one is added. Costs
/// `O(instances · containers)`.
pub(crate) fn spread(
    space: &Space<'_>,
    bins: &mut Vec<Bin>,
    homeless: &[Slot],
) -> Result<(), PackingError> {
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

/// Places the instances `homeless` into `bins` by first fit decreasing: the largest first, each
/// into the first container with room. If no container has room, one is added.
///
/// With one resource, this needs at most 11/9·OPT + 6/9 containers (Dósa, "The tight bound of first
/// fit decreasing bin-packing algorithm", ESCAPE 2007). The size of an instance is its largest
/// share of a container's cpu, memory or disk. `O(instances + vertices · containers)` after
/// sorting: a container without room for an instance has no room for the next instance of the same
/// size.
pub(crate) fn first_fit_decreasing(
    space: &Space<'_>,
    bins: &mut Vec<Bin>,
    homeless: &[Slot],
) -> Result<(), PackingError> {
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

fn place(space: &Space<'_>, bins: &mut [Bin], at: usize, slot: Slot) -> Result<(), PackingError> {
    let count = bins.len();
    let bin = &mut bins[at];
    if bin.put(space, slot) {
        return Ok(());
    }
    Err(space.too_few(bin, slot.vertex, count))
}

/// Adds an empty container, whose number is one above the highest.
pub(crate) fn open(bins: &mut Vec<Bin>) {
    let highest = bins.iter().map(|bin| bin.id.0).max().unwrap_or(0);
    bins.push(Bin::new(ContainerId(highest + 1)));
}
