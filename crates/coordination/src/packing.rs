//! Packing plans, which assign instances to containers, and the policies that compute them.
//!
//! A job requires a number of instances of each vertex, each with an amount of cpu, memory and disk
//! ([`JobDemand`]). A site limits the size of containers ([`PackingConfig`]). A [`PackingPolicy`]
//! turns both into a [`PackingPlan`]. If the demand changes while the job runs, it computes the
//! next plan with as few changes as possible.
//!
//! In reading order:
//!
//! * [`VertexName`], [`InstanceId`], [`ContainerId`]: identities;
//! * [`MilliCores`], [`Resources`]: amounts; [`JobDemand`], [`VertexDemand`]: requirements;
//! * [`PackingConfig`], [`ContainerLimits`], [`Padding`]: limits;
//! * [`PackingPlan`], [`ContainerPlan`], [`PlanChange`]: the result, and the difference between two
//!   results;
//! * [`PackingPolicy`] and its implementations [`RoundRobin`], [`BinPacking`],
//!   [`CompliantRoundRobin`], [`TrafficPacking`];
//! * [`PackingPolicies`]: policies by name, including those of users, chosen per job;
//! * [`InstanceLimits`], [`MOST_INSTANCES_ATTRIBUTE`]: limits of a cluster and of a vertex for the
//!   number of instances;
//! * [`COLOCATION_ATTRIBUTE`]: vertices that are colocated under every policy;
//! * [`PackingError`]: the reason for which a job cannot be packed, with the numbers.
//!
//! The interface and the first three policies are Heron's ("Twitter Heron: Towards Extensible
//! Streaming Engines", ICDE 2017, §IV-A). A test suite for all policies, including those of users,
//! is in `conformance`, behind the feature of that name.
//!
//! # Invariants
//!
//! * A [`PackingPlan`] contains every instance of its job exactly once, and no container over its
//!   limits. This is checked when it is created or read, whichever policy computed it.
//! * Packing is deterministic: the same demand, configuration and current plan give the same plan
//!   on every machine.
//! * [`PackingPolicy::repack`] never moves an instance that can stay.
//!
//! # Example
//!
//! ```
//! use ardea_coordination::packing::{
//!     ContainerLimits, JobDemand, MilliCores, PackingConfig, PackingPolicies, Resources, VertexDemand,
//! };
//!
//! let each = Resources { cpu: MilliCores(500), memory_bytes: 1 << 30, disk_bytes: 0 };
//! let demand = JobDemand::new("word-count")
//!     .vertex(VertexDemand::new("words", 2, each))
//!     .vertex(VertexDemand::new("counts", 4, each));
//! let config = PackingConfig {
//!     limits: ContainerLimits::of(Resources {
//!         cpu: MilliCores(2_000),
//!         ..Resources::UNLIMITED
//!     }),
//!     ..PackingConfig::default()
//! };
//!
//! let managers = PackingPolicies::builtin();
//! let plan = managers.get("binpack")?.pack(&demand, &config)?;
//! assert_eq!(plan.containers().len(), 2);
//!
//! let grown = demand.with_parallelism("counts", 6)?;
//! let next = managers.get("binpack")?.repack(&plan, &grown, &config)?;
//! assert!(plan.change_to(&next).moved.is_empty());
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod by_vertex;
mod demand;
mod identity;
mod instance_limits;
mod limits;
mod packing_error;
mod plan;
mod plan_change;
mod plan_table;
mod resources;

mod bins;
mod colocation;
mod place;
mod policy;
mod rebalance;
mod retain;

mod bin_packing;
mod compliant;
mod round_robin;
mod traffic;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use bin_packing::BinPacking;
pub use colocation::COLOCATION_ATTRIBUTE;
pub use compliant::CompliantRoundRobin;
pub use demand::{
    EQUAL_PARALLELISM_ATTRIBUTE, FIXED_INSTANCES_ATTRIBUTE, JobDemand, MOST_INSTANCES_ATTRIBUTE,
    VertexDemand,
};
pub use identity::{ContainerId, IdentityError, InstanceId, VertexName};
pub use instance_limits::InstanceLimits;
pub use limits::{ContainerLimits, PackingConfig, Padding};
pub use packing_error::{PackingError, Resource};
pub use plan::{ContainerPlan, PackingPlan, Placement};
pub use plan_change::{Move, PlanChange};
pub use policy::{PackingPolicies, PackingPolicy};
pub use resources::{MilliCores, ResourceError, Resources};
pub use round_robin::RoundRobin;
pub use traffic::{
    BALANCE_KEY, GROUPS_KEY, HOSTS_KEY, HostResources, PREFERRED_HOST_ATTRIBUTE, TRAFFIC,
    TrafficPacking,
};
