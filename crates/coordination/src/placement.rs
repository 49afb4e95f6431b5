//! Placement by traffic: which tasks share a host, so that little traffic crosses hosts.
//!
//! A job's instances and the traffic between them form a [`TrafficGraph`]. Placement has two steps:
//!
//! 1. [`Consolidation`] merges each task with the neighbour that it exchanges most traffic with,
//!    level by level, until few enough groups are left (Algorithm 1).
//! 2. [`assign`] splits the groups recursively over the hosts by breadth-first growth, within a
//!    [`BalanceFactor`], for the least traffic between hosts (Algorithm 2). It then refines the
//!    assignment at each level of the consolidation, down to the tasks.
//!
//! Both algorithms are those of "TurboStream: Towards Low-Latency Data Stream Processing" (ICDCS
//! 2018, §V). The paper stops at the groups; the refinement is added here.
//!
//! While a job runs, [`better_placement`] compares its plan with others by the measured traffic.
//! [`OnlinePlacement`] decides when one of them is proposed or carried out.
//!
//! [`TrafficRates`] has the rates of a job's edges: assumed from its graph, declared by the user,
//! or measured.
//!
//! # Invariants
//!
//! * Each task is assigned to exactly one host, and a host without capacity gets none.
//! * The load of a host exceeds its share by at most the balance factor, or by one task.
//! * The traffic between hosts is at most that of [`round_robin`].
//! * Amounts are integers, so the same graph gives the same assignment on every machine.

mod assignment;
mod better_placement;
mod bisection;
mod consolidation;
mod edge_rate;
mod online;
mod partition;
mod placement_error;
mod rates;
mod settings;
#[cfg(test)]
pub(crate) mod test_demands;
mod traffic_graph;

pub use assignment::{BalanceFactor, HostCapacity, assign, assign_consolidated, round_robin};
pub use better_placement::{CandidateLimits, CandidatePlacement, better_placement, cut_of_plan};
pub use consolidation::{Consolidation, ConsolidationLimits};
pub use edge_rate::EdgeRate;
pub use online::{OnlinePlacement, PlacementAction, PlacementEvent, PlacementProposal};
pub use placement_error::PlacementError;
pub use rates::{EdgeRouting, GRAPH_INPUTS_ATTRIBUTE, InputEdge, TrafficRates};
pub(crate) use rates::{colocated_tasks, edges_with_rates};
pub use settings::{PLACEMENT_SETTINGS, PlacementConfig, PlacementMode};
pub use traffic_graph::{TrafficGraph, TrafficRate};
