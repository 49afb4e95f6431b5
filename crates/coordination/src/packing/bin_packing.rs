//! Bin packing, which minimises the number of containers heuristically.

use ardea_core::Result;

use crate::packing::bins::{Bin, Space, placement};
use crate::packing::retain::{RetainedPlan, keep};
use crate::packing::{
    JobDemand, PackingConfig, PackingError, PackingPlan, PackingPolicy, place, round_robin,
};

/// A policy that packs instances into few containers, with regard to cpu, memory and disk. Uses
/// first fit decreasing, which needs at most 11/9·OPT + 6/9 containers with a single resource.
///
/// It never uses more containers than [`RoundRobin`](crate::packing::RoundRobin) with the same
/// configuration: it returns that policy's plan if this has fewer. When repacking, new instances
/// are balanced over the free space, unless the balanced plan needs more containers than first fit
/// decreasing. (Heron ICDE 2017, §IV-A.)
#[derive(Clone, Copy, Debug, Default)]
pub struct BinPacking;

impl PackingPolicy for BinPacking {
    fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan> {
        let placement = Space::new(demand, config)
            .and_then(|space| Ok(placement(&space, packed(&space, config)?)))
            .map_err(|refusal| refusal.into_error(&demand.job))?;
        PackingPlan::of(demand, config, placement)
    }

    fn repack(
        &self,
        current: &PackingPlan,
        demand: &JobDemand,
        config: &PackingConfig,
    ) -> Result<PackingPlan> {
        let placement = Space::new(demand, config)
            .and_then(|space| Ok(placement(&space, repacked(&space, current)?)))
            .map_err(|refusal| refusal.into_error(&demand.job))?;
        PackingPlan::of(demand, config, placement)
    }
}

fn packed(space: &Space<'_>, config: &PackingConfig) -> Result<Vec<Bin>, PackingError> {
    let mut bins = Vec::new();
    let slots: Vec<_> = space.slots().collect();
    place::first_fit_decreasing(space, &mut bins, &slots)?;
    if bins.len() == space.least_containers() {
        return Ok(bins);
    }
    match round_robin::dealt(space, config.containers) {
        Ok(dealt) if dealt.len() < bins.len() => Ok(dealt),
        _ => Ok(bins),
    }
}

fn repacked(space: &Space<'_>, current: &PackingPlan) -> Result<Vec<Bin>, PackingError> {
    let RetainedPlan { bins, homeless } = keep(space, current);
    let mut few = bins.clone();
    place::first_fit_decreasing(space, &mut few, &homeless)?;
    let mut balanced = bins;
    place::spread(space, &mut balanced, &homeless)?;
    Ok(if balanced.len() <= few.len() {
        balanced
    } else {
        few
    })
}
