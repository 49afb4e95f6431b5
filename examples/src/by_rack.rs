//! A custom packing policy: spreads the instances of each vertex over racks, so that the loss of a
//! rack affects as few instances of a vertex as possible.
//!
//! The policy assigns each container to a rack with the attribute `rack`, which the scheduler
//! `hosts` supports.

use std::collections::{BTreeMap, HashSet};

use ardea::core::{Error, ErrorCode, Result};
use ardea_coordination::packing::*;

/// The policy, with the values of the hosts' attribute `rack`. It uses one container per rack, and
/// more when these are full.
#[derive(Clone, Debug)]
pub struct ByRack(pub Vec<String>);

impl ByRack {
    /// Returns the rack of a container, by its position in the list. Containers are assigned
    /// round-robin, so the rack never changes.
    fn rack(&self, container: ContainerId) -> usize {
        container.0.saturating_sub(1) as usize % self.0.len()
    }

    /// Returns the number of instances per rack for which `counts` is true.
    fn count(&self, placed: &Placement, counts: impl Fn(&InstanceId) -> bool) -> Vec<usize> {
        let mut of_racks = vec![0; self.0.len()];
        for (at, here) in placed {
            of_racks[self.rack(*at)] += here.iter().filter(|it| counts(it)).count();
        }
        of_racks
    }

    /// Keeps the instances of `current` that may stay in place, and places all others.
    fn place(
        &self,
        current: Vec<(ContainerId, InstanceId)>,
        demand: &JobDemand,
        config: &PackingConfig,
    ) -> Result<PackingPlan> {
        if self.0.is_empty() {
            let what = "no rack was named: packing by rack needs one or more";
            return Err(Error::new(ErrorCode::InvalidConfig, what));
        }
        // An instance that fits nowhere is rejected with the numbers.
        BinPacking.pack(demand, config)?;
        let (mut placed, mut staying) = (Placement::new(), HashSet::new());
        let mut used: BTreeMap<ContainerId, Resources> = BTreeMap::new();
        let mut put = |placed: &mut Placement, at, instance: InstanceId, of: &VertexDemand| {
            let after = used
                .get(&at)
                .map_or(Some(of.resources), |it| it.checked_add(of.resources));
            let required = after.and_then(|after| config.padding.required(after));
            let fits = required.is_some_and(|all| all.fits_in(&config.limits.resources));
            let here = placed.entry(at).or_default();
            let most = config.limits.instances.map_or(u32::MAX, |most| most.get());
            let may = here.is_empty() || (fits && here.len() < most as usize);
            if may {
                here.push(instance);
                used.insert(at, after.unwrap_or(Resources::UNLIMITED));
            }
            may
        };
        for (at, instance) in current {
            let vertex = demand.vertices.iter().find(|v| v.name == instance.vertex);
            if let Some(vertex) = vertex.filter(|v| instance.index < v.parallelism)
                && put(&mut placed, at, instance.clone(), vertex)
            {
                staying.insert(instance);
            }
        }
        for vertex in &demand.vertices {
            let mut of_this = self.count(&placed, |it| it.vertex == vertex.name);
            let of_all = self.count(&placed, |_| true);
            for instance in vertex.instances().filter(|it| !staying.contains(it)) {
                let fewest = (0..self.0.len()).min_by_key(|rack| (of_this[*rack], of_all[*rack]));
                let rack = fewest.unwrap_or(0);
                let mut of_rack = (rack as u32 + 1..).step_by(self.0.len()).map(ContainerId);
                of_rack.find(|at| put(&mut placed, *at, instance.clone(), vertex));
                of_this[rack] += 1;
            }
        }
        let plan = PackingPlan::of(demand, config, placed.clone())?;
        let tell = |plan: PackingPlan, at| plan.with_attribute(at, "rack", &self.0[self.rack(at)]);
        Ok(placed.into_keys().fold(plan, tell))
    }
}

impl PackingPolicy for ByRack {
    fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan> {
        self.place(Vec::new(), demand, config)
    }

    fn repack(
        &self,
        now: &PackingPlan,
        job: &JobDemand,
        by: &PackingConfig,
    ) -> Result<PackingPlan> {
        let containers = now.containers().iter();
        let here = containers.flat_map(|it| it.instances.iter().map(|i| (it.id, i.clone())));
        self.place(here.collect(), job, by)
    }
}
