//! The interface of packing policies, and policies by name.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};

use crate::packing::bins::{self, Space};
use crate::packing::keep::{Kept, keep};
use crate::packing::together::Together;
use crate::packing::{
    BinPacking, CompliantRoundRobin, JobDemand, PackingConfig, PackingPlan, Refusal, RoundRobin,
    level, place,
};

/// A packing policy: decides which instance runs in which container.
///
/// All operations are functions of their arguments: no clock, no randomness, nothing remembered. They are called when a
/// job is submitted, and when its parallelism or its number of containers changes, by its master, and may take their time (seconds).
///
/// A policy of one's own decides on a [`Placement`](crate::packing::Placement) and has [`PackingPlan::of`] make the plan, which checks it.
/// This one puts each vertex into the container that its attribute `rack` says:
///
/// ```
/// use ardea_core::Result;
/// use ardea_coordination::packing::*;
///
/// struct ByRack;
///
/// impl ResourceManager for ByRack {
///     fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan> {
///         let mut placement = Placement::new();
///         for vertex in &demand.vertices {
///             let rack = vertex.attributes.get("rack").and_then(|rack| rack.parse().ok());
///             let container = placement.entry(ContainerId(rack.unwrap_or(1))).or_default();
///             container.extend(vertex.instances());
///         }
///         PackingPlan::of(demand, config, placement)
///     }
/// }
///
/// let managers = ResourceManagers::builtin().with("by-rack", ByRack);
/// let demand = JobDemand::new("replicas")
///     .vertex(VertexDemand::new("left", 2, Resources::ZERO).attribute("rack", "1"))
///     .vertex(VertexDemand::new("right", 2, Resources::ZERO).attribute("rack", "2"));
/// let plan = managers.get("by-rack")?.pack(&demand, &PackingConfig::default())?;
/// assert_eq!(plan.container_of(&InstanceId::new("right", 1)), Some(ContainerId(2)));
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub trait ResourceManager: Send + Sync {
    /// Makes the first plan of a job.
    ///
    /// # Errors
    ///
    /// When the job doesn't fit, with the numbers; nothing is started then.
    fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan>;

    /// Makes the next plan of a running job whose demand has changed, disturbing as little as possible.
    ///
    /// Unless a policy knows better: nothing moves that may stay, new instances go into free space first, each where the
    /// fewest are, and containers that nothing is left in are given back.
    ///
    /// # Errors
    ///
    /// When the demand doesn't fit; the job goes on by its current plan then.
    fn repack(
        &self,
        current: &PackingPlan,
        demand: &JobDemand,
        config: &PackingConfig,
    ) -> Result<PackingPlan> {
        repack_balanced(current, demand, config, None)
    }

    /// Makes the next plan of a running job that is to be in so many containers, or in as many as it has instances, if these are fewer.
    ///
    /// Unless a policy knows better: as few instances move as that takes, so that in the end all containers have as many as each other,
    /// give or take one, where there is room.
    ///
    /// # Errors
    ///
    /// When the instances don't fit into so few; the job goes on by its current plan then.
    fn spread_over(
        &self,
        current: &PackingPlan,
        config: &PackingConfig,
        containers: NonZeroU32,
    ) -> Result<PackingPlan> {
        level::spread_over(current, config, containers)
    }
}

/// Repacks as [`ResourceManager::repack`] says; with `containers`, adds containers up to that number if new instances need a place.
pub(crate) fn repack_balanced(
    current: &PackingPlan,
    demand: &JobDemand,
    config: &PackingConfig,
    containers: Option<NonZeroU32>,
) -> Result<PackingPlan> {
    let bins = (|| {
        let space = Space::new(demand, config)?;
        let Kept { mut bins, homeless } = keep(&space, current);
        let wanted = containers.map_or(0, |count| count.get() as usize);
        let most = (bins.len() + homeless.len()).min(wanted);
        while bins.len() < most {
            place::open(&mut bins);
        }
        place::spread(&space, &mut bins, &homeless)?;
        Ok(bins::placement(&space, bins))
    })()
    .map_err(|refusal: Refusal| refusal.into_error(&demand.job))?;
    PackingPlan::of(demand, config, bins)
}

/// Packing policies by name: `packing=binpack` in a job's configuration chooses one, so that two jobs of one cluster may use
/// different ones.
#[derive(Clone)]
pub struct ResourceManagers(BTreeMap<String, Arc<dyn ResourceManager>>);

impl ResourceManagers {
    /// The policies of this crate: `round-robin`, `binpack`, `compliant-round-robin`.
    pub fn builtin() -> Self {
        ResourceManagers(BTreeMap::new())
            .with("round-robin", RoundRobin)
            .with("binpack", BinPacking)
            .with("compliant-round-robin", CompliantRoundRobin)
    }

    /// Adds a policy, or replaces the one of this name.
    pub fn with(
        mut self,
        name: impl Into<String>,
        manager: impl ResourceManager + 'static,
    ) -> Self {
        self.0.insert(name.into(), Arc::new(manager));
        self
    }

    /// The policy of this name, which keeps together what has to be ([`TOGETHER_ATTRIBUTE`](crate::packing::TOGETHER_ATTRIBUTE)).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidConfig`] when there is none, with the names that there are.
    pub fn get(&self, name: &str) -> Result<Arc<dyn ResourceManager>> {
        let found = self.0.get(name).map(|manager| {
            let together: Arc<dyn ResourceManager> = Arc::new(Together(Arc::clone(manager)));
            together
        });
        found.ok_or_else(|| {
            let names: Vec<_> = self.names().collect();
            Error::new(
                ErrorCode::InvalidConfig,
                format!("there is no packing policy {name:?}"),
            )
            .hint(format!("choose one of: {}", names.join(", ")))
        })
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl Default for ResourceManagers {
    fn default() -> Self {
        ResourceManagers::builtin()
    }
}

impl fmt::Debug for ResourceManagers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
