//! Rescaling to another number of containers with few moves of instances.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ardea_core::Result;

use crate::packing::bins::{Bin, Slot, Space, placement};
use crate::packing::retain::{RetainedPlan, keep};
use crate::packing::{JobDemand, PackingConfig, PackingError, PackingPlan, Placement, place};

/// Spreads the instances of a plan over this number of containers, but at most one container per
/// instance.
///
/// Surplus containers are removed: those with the fewest instances, on ties those with the highest
/// numbers. Their instances, and surplus instances of the fullest containers, move to the
/// containers with the fewest. In the result, the numbers of instances of any two containers differ
/// by at most one, as far as the containers have room.
pub(crate) fn spread_over(
    current: &PackingPlan,
    config: &PackingConfig,
    containers: NonZeroU32,
) -> Result<PackingPlan> {
    let demand = current.demand();
    let levelled = levelled(&demand, current, config, containers)
        .map_err(|refusal| refusal.into_error(&demand.job))?;
    PackingPlan::of(&demand, config, levelled)
}

fn levelled(
    demand: &JobDemand,
    current: &PackingPlan,
    config: &PackingConfig,
    containers: NonZeroU32,
) -> Result<Placement, PackingError> {
    let space = Space::new(demand, config)?;
    let instances = usize::try_from(demand.instance_count()).unwrap_or(usize::MAX);
    let count = (containers.get() as usize).min(instances);
    let RetainedPlan {
        mut bins,
        mut homeless,
    } = keep(&space, current);
    while bins.len() > count {
        let emptiest = |at: &usize| (bins[*at].slots.len(), Reverse(bins[*at].id));
        let Some(at) = (0..bins.len()).min_by_key(emptiest) else {
            break;
        };
        homeless.extend(bins.remove(at).slots);
    }
    while bins.len() < count {
        place::open(&mut bins);
    }
    homeless.sort_unstable();
    let last = homeless.last().copied();
    place::spread(&space, &mut bins, &homeless)?;
    if bins.len() > count
        && let (Some(slot), Some(fullest)) = (last, fullest(&bins[..count]))
    {
        return Err(space.too_few(&bins[fullest], slot.vertex, count));
    }
    level(&space, &mut bins);
    Ok(placement(&space, bins))
}

/// Returns the position of the container with the most instances; on ties, of the one with the
/// lowest number.
fn fullest(bins: &[Bin]) -> Option<usize> {
    (0..bins.len()).max_by_key(|at| (bins[*at].slots.len(), Reverse(bins[*at].id)))
}

/// Moves instances from the fullest container to the emptiest, one by one, until the containers are
/// balanced or no further instance fits.
fn level(space: &Space<'_>, bins: &mut [Bin]) {
    loop {
        let emptiest = (0..bins.len()).min_by_key(|at| (bins[*at].slots.len(), bins[*at].id));
        let (Some(from), Some(to)) = (fullest(bins), emptiest) else {
            return;
        };
        if bins[from].slots.len() <= bins[to].slots.len() + 1 {
            return;
        }
        let Some(slot) = best(space, &bins[from], &bins[to]) else {
            return;
        };
        bins[from].take(space, slot);
        bins[to].put(space, slot);
    }
}

/// Returns the instance to move from `from` to `to`. It has the highest index of the vertex whose
/// number of instances in `from` most exceeds that in `to`.
fn best(space: &Space<'_>, from: &Bin, to: &Bin) -> Option<Slot> {
    let mut more: BTreeMap<_, i64> = BTreeMap::new();
    for slot in &from.slots {
        *more.entry(slot.vertex).or_default() += 1;
    }
    for slot in &to.slots {
        more.entry(slot.vertex).and_modify(|count| *count -= 1);
    }
    let fitting = from.slots.iter().copied();
    let fitting = fitting.filter(|slot| to.has_room(space, slot.vertex));
    fitting.max_by_key(|slot| {
        let more = more.get(&slot.vertex).copied();
        (more, Reverse(slot.vertex), slot.index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::{ContainerLimits, PackingPolicy, Resources, RoundRobin, VertexDemand};

    fn job() -> JobDemand {
        JobDemand::new("job")
            .vertex(VertexDemand::new("bids", 4, Resources::ZERO))
            .vertex(VertexDemand::new("counts", 8, Resources::ZERO))
    }

    fn config(containers: u32) -> PackingConfig {
        PackingConfig {
            containers: NonZeroU32::new(containers),
            ..PackingConfig::default()
        }
    }

    fn over(plan: &PackingPlan, containers: u32) -> PackingPlan {
        let containers = NonZeroU32::new(containers).unwrap();
        spread_over(plan, &config(2), containers).unwrap()
    }

    fn sizes(plan: &PackingPlan) -> Vec<usize> {
        let containers = plan.containers().iter();
        containers.map(|it| it.instances.len()).collect()
    }

    #[test]
    fn one_more_container_gets_its_share_and_no_other_instance_moves() {
        let two = RoundRobin.pack(&job(), &config(2)).unwrap();
        let three = over(&two, 3);
        assert_eq!(sizes(&three), [4, 4, 4]);
        assert_eq!(two.change_to(&three).moved.len(), 4);
        let back = over(&three, 2);
        assert_eq!(sizes(&back), [6, 6]);
        assert_eq!(three.change_to(&back).moved.len(), 4);
    }

    #[test]
    fn as_many_containers_as_before_change_nothing_and_more_than_instances_are_not_made() {
        let two = RoundRobin.pack(&job(), &config(2)).unwrap();
        assert_eq!(over(&two, 2), two);
        assert_eq!(over(&two, 40).containers().len(), 12);
        assert_eq!(over(&over(&two, 40), 1).containers().len(), 1);
    }

    #[test]
    fn fewer_containers_than_there_is_room_in_are_refused() {
        let two = RoundRobin.pack(&job(), &config(2)).unwrap();
        let small = PackingConfig {
            limits: ContainerLimits {
                instances: NonZeroU32::new(6),
                ..ContainerLimits::default()
            },
            ..config(2)
        };
        let refused = spread_over(&two, &small, NonZeroU32::MIN).unwrap_err();
        assert!(refused.to_string().contains("container"), "{refused}");
        assert!(spread_over(&two, &small, NonZeroU32::new(3).unwrap()).is_ok());
    }
}
