//! Iterations over bounded datasets, with conflict-free shared variables.
//!
//! A [`Dataset`] stays in memory in partitions. In each iteration a function reads a partition and
//! the shared variables, and commits updates. The updates of all partitions are merged and applied
//! before the variables are read in the next iteration ("Drizzle", SOSP 2017, section 4).
//!
//! In reading order:
//!
//! * [`Merge`]: updates that merge in any order; counts, sums, extremes, maps, [`VectorUpdate`]s;
//! * [`SharedVariable`]: a value to which merged updates are applied; [`Replicated`], [`Vector`];
//! * [`Variables`]: the variables of an iteration, with typed handles;
//! * [`Dataset`]: partitions in memory;
//! * [`Iterate`]: runs the iterations on threads, and optionally in several processes;
//! * [`Snapshot`]: the values of all variables after a group of iterations;
//! * [`Exchange`]: the messages between processes; [`MemoryExchange`] and [`PeerExchange`];
//! * [`laws`]: checks of user-defined merges, for property tests.
//!
//! # Invariants
//!
//! * Results are the same to the bit for any number of threads and processes. Only the number of
//!   partitions has an effect on the rounding of sums.
//! * No coordination happens between the iterations of a group. Workers wait for updates only.
//! * A value contains the updates of whole iterations only.
//! * A number that is not finite ends the run, with its iteration, variable and index, and the
//!   partition that has committed it.
//!
//! # Example
//!
//! The mean of numbers as the minimum of a squared distance:
//!
//! ```
//! use ardea_iteration::{Dataset, Iterate, Replicated, Total, Variables};
//!
//! let numbers = Dataset::split((0..100).map(f64::from).collect(), 4)?;
//! let mut variables = Variables::new();
//! let mean = variables.add("mean", Replicated(Total(0.0)))?;
//! let report = Iterate::new(variables)
//!     .threads(2)
//!     .group(10)
//!     .iterations(50)
//!     .run(&numbers, |task| {
//!         let current = task.get(&mean)?.0.0;
//!         let gradient: f64 = task.partition().iter().map(|x| x - current).sum();
//!         task.commit(&mean, Total(gradient / 200.0))
//!     })?;
//! assert!((report.value(&mean)?.0.0 - 49.5).abs() < 1e-9);
//! # Ok::<(), ardea_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod binary;

mod fault;
pub mod laws;
mod merge;
mod vector;

mod erased;
mod shared_variable;
mod snapshot;
mod variables;

mod dataset;
mod parts;

mod reduction;

mod exchange;
mod mailbox;
mod memory_exchange;
mod peer_exchange;

mod replica;

mod group;
mod iterate;
mod report;
mod task;

pub use dataset::Dataset;
pub use exchange::{Exchange, ExchangeMessage, ExchangePayload};
pub use fault::VariableFault;
pub use iterate::Iterate;
pub use memory_exchange::MemoryExchange;
pub use merge::{Counter, Highest, Lowest, Merge, Total};
pub use peer_exchange::{PeerExchange, PeerListener};
pub use reduction::Subtree;
pub use report::{IterationCounters, IterationReport, StopReason};
pub use shared_variable::{Replicated, SharedVariable, Vector};
pub use snapshot::Snapshot;
pub use task::Task;
pub use variables::{Variable, VariableValues, Variables};
pub use vector::{SparseAccumulator, SparseVector, VectorUpdate};
