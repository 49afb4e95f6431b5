//! The interface of packing policies, and their registry.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};

use crate::packing::bins::{self, Space};
use crate::packing::colocation::ColocatedPolicy;
use crate::packing::retain::{RetainedPlan, keep};
use crate::packing::{
    BinPacking, CompliantRoundRobin, JobDemand, PackingConfig, PackingError, PackingPlan,
    RoundRobin, TRAFFIC, TrafficPacking, place, rebalance,
};

/// A packing policy, which assigns instances to containers.
///
/// All operations are pure functions of their arguments. They are called at submission, and by the
/// job master when the parallelism or the number of containers changes. They may take seconds.
///
/// A user's policy computes a [`Placement`](crate::packing::Placement) and passes it to
/// [`PackingPlan::of`], which validates it. The following policy puts each vertex into the
/// container that its attribute `rack` gives:
///
/// ```
/// use ardea_core::Result;
/// use ardea_coordination::packing::*;
///
/// struct ByRack;
///
/// impl PackingPolicy for ByRack {
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
/// let managers = PackingPolicies::builtin().with("by-rack", ByRack);
/// let demand = JobDemand::new("replicas")
///     .vertex(VertexDemand::new("left", 2, Resources::ZERO).attribute("rack", "1"))
///     .vertex(VertexDemand::new("right", 2, Resources::ZERO).attribute("rack", "2"));
/// let plan = managers.get("by-rack")?.pack(&demand, &PackingConfig::default())?;
/// assert_eq!(plan.container_of(&InstanceId::new("right", 1)), Some(ContainerId(2)));
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub trait PackingPolicy: Send + Sync {
    /// Computes the first plan of a job.
    ///
    /// # Errors
    ///
    /// If the job does not fit into containers within the limits, with the numbers. The job is not
    /// started then.
    fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan>;

    /// Computes the next plan of a running job whose demand has changed, with as few changes as
    /// possible.
    ///
    /// By default no instance moves that can stay. New instances go into free space, each into the
    /// container with the fewest instances, and empty containers are released.
    ///
    /// # Errors
    ///
    /// If the demand does not fit. The job continues with its current plan then.
    fn repack(
        &self,
        current: &PackingPlan,
        demand: &JobDemand,
        config: &PackingConfig,
    ) -> Result<PackingPlan> {
        repack_balanced(current, demand, config, None)
    }

    /// Computes the next plan of a running job with this number of containers, but at most one
    /// container per instance.
    ///
    /// By default, only as many instances move as are necessary to balance the containers, as far
    /// as these have room.
    ///
    /// # Errors
    ///
    /// If the instances do not fit. The job continues with its current plan then.
    fn spread_over(
        &self,
        current: &PackingPlan,
        config: &PackingConfig,
        containers: NonZeroU32,
    ) -> Result<PackingPlan> {
        rebalance::spread_over(current, config, containers)
    }
}

/// Repacks like the default [`PackingPolicy::repack`], but first adds empty containers for new
/// instances, up to `containers` in total.
pub(crate) fn repack_balanced(
    current: &PackingPlan,
    demand: &JobDemand,
    config: &PackingConfig,
    containers: Option<NonZeroU32>,
) -> Result<PackingPlan> {
    let bins = (|| {
        let space = Space::new(demand, config)?;
        let RetainedPlan { mut bins, homeless } = keep(&space, current);
        let wanted = containers.map_or(0, |count| count.get() as usize);
        let most = (bins.len() + homeless.len()).min(wanted);
        while bins.len() < most {
            place::open(&mut bins);
        }
        place::spread(&space, &mut bins, &homeless)?;
        Ok(bins::placement(&space, bins))
    })()
    .map_err(|refusal: PackingError| refusal.into_error(&demand.job))?;
    PackingPlan::of(demand, config, bins)
}

/// Packing policies by name. A job chooses its policy by a setting such as `packing=binpack`.
#[derive(Clone)]
pub struct PackingPolicies(BTreeMap<String, Arc<dyn PackingPolicy>>);

impl PackingPolicies {
    /// Returns the policies of this crate: `round-robin`, `binpack`, `compliant-round-robin`,
    /// `traffic`.
    pub fn builtin() -> Self {
        PackingPolicies(BTreeMap::new())
            .with("round-robin", RoundRobin)
            .with("binpack", BinPacking)
            .with("compliant-round-robin", CompliantRoundRobin)
            .with(TRAFFIC, TrafficPacking)
    }

    /// Adds a policy, or replaces the one of this name.
    pub fn with(mut self, name: impl Into<String>, manager: impl PackingPolicy + 'static) -> Self {
        self.0.insert(name.into(), Arc::new(manager));
        self
    }

    /// Returns the policy of this name, with colocation
    /// ([`COLOCATION_ATTRIBUTE`](crate::packing::COLOCATION_ATTRIBUTE)).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidConfig`] with the known names, if there is no policy of this name.
    pub fn get(&self, name: &str) -> Result<Arc<dyn PackingPolicy>> {
        let found = self.0.get(name).map(|manager| {
            let together: Arc<dyn PackingPolicy> = Arc::new(ColocatedPolicy(Arc::clone(manager)));
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

    /// Returns the names of the policies, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl Default for PackingPolicies {
    fn default() -> Self {
        PackingPolicies::builtin()
    }
}

impl fmt::Debug for PackingPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
