//! Partitioned, replicated key-value maps in the memory of several processes.
//!
//! In reading order:
//!
//! * [`protocol`]: a member as a pure state machine: partitions, backups, views;
//! * [`node`]: members in processes, and the maps of their users;
//! * [`cluster`]: the grid of the hosts of a cluster: checkpoints in memory, maps of jobs.
//!
//! # Invariants
//!
//! * An acknowledged write survives the loss of as many members as there are backups.
#![forbid(unsafe_code)]

pub mod cluster;
pub mod node;
pub mod protocol;
