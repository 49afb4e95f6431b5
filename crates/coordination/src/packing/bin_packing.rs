//! Bin packing: as few containers as a good heuristic finds.

use ardea_core::Result;

use crate::packing::bins::{Bin, Space, placement};
use crate::packing::keep::{Kept, keep};
use crate::packing::{
    JobDemand, PackingConfig, PackingPlan, Refusal, ResourceManager, place, round_robin,
};

/// Packs into few containers, over cpu, memory and disk: cost. First fit decreasing; with one resource that needs at most
/// 11/9·OPT + 6/9 containers.
///
/// Never more containers than [`RoundRobin`](crate::packing::RoundRobin) would take with the same configuration: where first fit decreasing, a
/// heuristic, takes more, the instances are dealt out. When repacking, new instances are balanced over the free space as long as that
/// takes no more containers than first fit decreasing would. (Heron ICDE 2017, §IV-A.)
#[derive(Clone, Copy, Debug, Default)]
pub struct BinPacking;

impl ResourceManager for BinPacking {
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

fn packed(space: &Space<'_>, config: &PackingConfig) -> Result<Vec<Bin>, Refusal> {
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

fn repacked(space: &Space<'_>, current: &PackingPlan) -> Result<Vec<Bin>, Refusal> {
    let Kept { bins, homeless } = keep(space, current);
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
