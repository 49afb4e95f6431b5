//! Which instance runs in which container: packing plans, and the policies that make them.
//!
//! A job asks for so many instances of each vertex, each with some cpu, memory and disk ([`JobDemand`]); a site says how
//! large a container may be ([`PackingConfig`]). A [`ResourceManager`] turns both into a [`PackingPlan`], and, when the
//! demand changes while the job runs, into the next plan that disturbs as little as possible.
//!
//! In reading order:
//!
//! * [`VertexName`], [`InstanceId`], [`ContainerId`]: who is placed where;
//! * [`MilliCores`], [`Resources`]: how much; [`JobDemand`], [`VertexDemand`]: of what;
//! * [`PackingConfig`], [`ContainerLimits`], [`Padding`]: within what;
//! * [`PackingPlan`], [`ContainerPlan`], [`PlanChange`]: the outcome, and what differs between two of them;
//! * [`ResourceManager`] and its implementations [`RoundRobin`], [`BinPacking`], [`CompliantRoundRobin`];
//! * [`ResourceManagers`]: policies by name, a user's own among them, so that each job chooses its own;
//! * [`InstanceLimits`], [`MOST_INSTANCES_ATTRIBUTE`]: how many instances a cluster allows, and how many a vertex can have;
//! * [`TOGETHER_ATTRIBUTE`]: which vertices have to stay together, whichever policy packs them;
//! * [`Refusal`]: why a job can't be packed, with the numbers.
//!
//! The interface and the three policies are Heron's ("Twitter Heron: Towards Extensible Streaming Engines", ICDE 2017,
//! §IV-A).
//!
//! A suite that every policy passes, one's own too, is in `conformance`, behind the feature of that name.
//!
//! # Invariants
//!
//! * A [`PackingPlan`] holds every instance of its job exactly once and no container over its limits: it can't be
//!   made, nor read from anywhere, otherwise, whoever wrote the policy.
//! * Packing is a function: the same demand, configuration and current plan give the same plan, on every machine.
//! * [`ResourceManager::repack`] never moves an instance that may stay where it is.
//!
//! # Example
//!
//! ```
//! use ardea_coordination::packing::{
//!     ContainerLimits, JobDemand, MilliCores, PackingConfig, ResourceManagers, Resources, VertexDemand,
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
//! let managers = ResourceManagers::builtin();
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
mod plan;
mod plan_change;
mod plan_table;
mod refusal;
mod resources;

mod bins;
mod keep;
mod level;
mod manager;
mod place;
mod together;

mod bin_packing;
mod compliant;
mod round_robin;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use bin_packing::BinPacking;
pub use compliant::CompliantRoundRobin;
pub use demand::{
    AS_MANY_ATTRIBUTE, FIXED_INSTANCES_ATTRIBUTE, JobDemand, MOST_INSTANCES_ATTRIBUTE, VertexDemand,
};
pub use identity::{ContainerId, IdentityError, InstanceId, VertexName};
pub use instance_limits::InstanceLimits;
pub use limits::{ContainerLimits, PackingConfig, Padding};
pub use manager::{ResourceManager, ResourceManagers};
pub use plan::{ContainerPlan, PackingPlan, Placement};
pub use plan_change::{Move, PlanChange};
pub use refusal::{Refusal, Resource};
pub use resources::{MilliCores, ResourceError, Resources};
pub use round_robin::RoundRobin;
pub use together::TOGETHER_ATTRIBUTE;
