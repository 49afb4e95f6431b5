//! Round robin: instances are dealt out like cards.

use std::num::NonZeroU32;

use ardea_core::Result;

use crate::packing::bins::{Bin, Space, empty_bins, placement};
use crate::packing::manager::repack_balanced;
use crate::packing::{JobDemand, PackingConfig, PackingPlan, Refusal, ResourceManager};

/// Deals the instances out to the containers in turn: balance. The numbers of instances of any two containers differ by one at
/// most, and so do those of any one vertex.
///
/// With [`PackingConfig::containers`] it is that many containers, or a refusal if one of them would be over its limit; without,
/// the least number at which all are within it. (Heron ICDE 2017, §IV-A.)
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin;

impl ResourceManager for RoundRobin {
    fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan> {
        let placement = Space::new(demand, config)
            .and_then(|space| Ok(placement(&space, dealt(&space, config.containers)?)))
            .map_err(|refusal| refusal.into_error(&demand.job))?;
        PackingPlan::of(demand, config, placement)
    }

    fn repack(
        &self,
        current: &PackingPlan,
        demand: &JobDemand,
        config: &PackingConfig,
    ) -> Result<PackingPlan> {
        repack_balanced(current, demand, config, config.containers)
    }
}

/// The containers after dealing to so many, or to the fewest that will do.
pub(crate) fn dealt(
    space: &Space<'_>,
    containers: Option<NonZeroU32>,
) -> Result<Vec<Bin>, Refusal> {
    let instances = space.demand().instance_count() as usize;
    if let Some(containers) = containers {
        return deal(space, (containers.get() as usize).min(instances));
    }
    let mut containers = space.least_containers().min(instances);
    loop {
        match deal(space, containers) {
            // With a container for each instance all fit; the space has made sure of it.
            Err(_) if containers < instances => containers += 1,
            outcome => return outcome,
        }
    }
}

fn deal(space: &Space<'_>, containers: usize) -> Result<Vec<Bin>, Refusal> {
    let mut bins = empty_bins(containers);
    for (turn, slot) in space.slots().enumerate() {
        let bin = &mut bins[turn % containers];
        if !bin.put(space, slot) {
            return Err(space.too_few(bin, slot.vertex, containers));
        }
    }
    Ok(bins)
}
