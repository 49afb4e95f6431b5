//! The control plane of a cluster as deterministic state machines: `on(now, event)` returns
//! actions.
//!
//! In reading order:
//!
//! * [`packing`]: packing plans, and the policies that compute them;
//! * [`control`]: leases, membership, the job master, checkpoints, upgrades;
//! * [`elasticity`]: policies that size a running job by its load;
//! * [`placement`]: placement of instances by the traffic between them;
//! * [`optimizer`]: rules that improve a running job by what its steps have measured.
//!
//! # Invariants
//!
//! * This crate has no threads, sockets, clocks or random numbers. A driver passes in events and
//!   executes the actions; the simulator is such a driver.
#![forbid(unsafe_code)]

pub mod control;
pub mod elasticity;
pub mod optimizer;
pub mod packing;
pub mod placement;
