//! Round-robin packing, which deals instances out in turn.

use std::num::NonZeroU32;

use ardea_core::Result;

use crate::packing::bins::{Bin, Space, empty_bins, placement};
use crate::packing::policy::repack_balanced;
use crate::packing::{JobDemand, PackingConfig, PackingError, PackingPlan, PackingPolicy};

/// A policy that assigns instances to containers in turn, for balance. The numbers of instances of
/// any two containers differ by at most one, in total and for each vertex.
///
/// If [`PackingConfig::containers`] is set, the policy uses this number, and fails if a container
/// would exceed its limits. Otherwise it uses the least number for which all containers are within
/// their limits. (Heron ICDE 2017, §IV-A.)
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin;

impl PackingPolicy for RoundRobin {
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

/// Returns the filled containers, in the number `containers` or, if `None`, the least possible
/// number.
pub(crate) fn dealt(
    space: &Space<'_>,
    containers: Option<NonZeroU32>,
) -> Result<Vec<Bin>, PackingError> {
    let instances = space.demand().instance_count() as usize;
    if let Some(containers) = containers {
        return deal(space, (containers.get() as usize).min(instances));
    }
    let mut containers = space.least_containers().min(instances);
    loop {
        match deal(space, containers) {
            // With one container per instance, all instances fit, as `Space` has checked.
            Err(_) if containers < instances => containers += 1,
            outcome => return outcome,
        }
    }
}

fn deal(space: &Space<'_>, containers: usize) -> Result<Vec<Bin>, PackingError> {
    let mut bins = empty_bins(containers);
    for (turn, slot) in space.slots().enumerate() {
        let bin = &mut bins[turn % containers];
        if !bin.put(space, slot) {
            return Err(space.too_few(bin, slot.vertex, containers));
        }
    }
    Ok(bins)
}
