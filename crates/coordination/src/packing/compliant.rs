//! Resource-compliant round-robin packing, which skips full containers.

use ardea_core::Result;

use crate::packing::bins::{Bin, Space, empty_bins, placement};
use crate::packing::policy::repack_balanced;
use crate::packing::{JobDemand, PackingConfig, PackingError, PackingPlan, PackingPolicy, place};

/// A policy that assigns instances to containers in turn, as
/// [`RoundRobin`](crate::packing::RoundRobin) does, but skips containers without room. If none has
/// room, it adds a container. It suits jobs whose vertices differ in size.
///
/// It starts with [`PackingConfig::containers`] containers, or with the minimum number for the
/// total demand. (Heron's `ResourceCompliantRRPacking`, of the family of ICDE 2017, §IV-A.)
#[derive(Clone, Copy, Debug, Default)]
pub struct CompliantRoundRobin;

impl PackingPolicy for CompliantRoundRobin {
    fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan> {
        let placement = Space::new(demand, config)
            .and_then(|space| Ok(placement(&space, dealt(&space, config)?)))
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

fn dealt(space: &Space<'_>, config: &PackingConfig) -> Result<Vec<Bin>, PackingError> {
    let instances = space.demand().instance_count() as usize;
    let containers = config
        .containers
        .map_or(space.least_containers(), |count| count.get() as usize);
    let mut bins = empty_bins(containers.min(instances));
    let mut turn = 0;
    for slot in space.slots() {
        let found = (0..bins.len())
            .map(|step| (turn + step) % bins.len())
            .find(|at| bins[*at].has_room(space, slot.vertex));
        let at = found.unwrap_or_else(|| {
            place::open(&mut bins);
            bins.len() - 1
        });
        if !bins[at].put(space, slot) {
            return Err(space.too_few(&bins[at], slot.vertex, bins.len()));
        }
        turn = (at + 1) % bins.len();
    }
    Ok(bins)
}
