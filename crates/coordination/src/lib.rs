//! The control plane of a cluster as pure state machines: `on(now, event)` returns actions.
//!
//! In reading order:
//!
//! * [`packing`]: which instance runs in which container: plans, and the policies that make them;
//! * [`control`]: leases, membership, the master of a job, checkpoints, upgrades.
//!
//! # Invariants
//!
//! * Nothing here has a thread, socket, clock or randomness. A driver passes in what has happened,
//!   and carries out the actions; the simulator does so as well.
#![forbid(unsafe_code)]

pub mod control;
pub mod packing;
