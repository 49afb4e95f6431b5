//! The state manager that keeps its tree in etcd.
//!
//! [`EtcdState`] is a [`StateManager`](crate::StateManager) over an etcd cluster, version 3.4 or later.
//! The node `/jobs/a` below the root `/prod` is the key `/prod/2/jobs/a`: with the depth before it, the children of a
//! node are one range of keys, and nothing else is in it.
//!
//! # Invariants
//!
//! * A version is the revision of the store at which the node was written (`mod_revision`).
//! * Every change is one transaction with its condition in it.
//! * A session is a lease. Its owner renews it three times as often as is needed, counts its time from when a renewal
//!   was *sent*, and so is told that it has ended before the server can let its nodes go.
//! * A watch begins at the revision that was read. When its stream breaks, falls silent or is compacted away, the node is
//!   read again and told: no state that lasts is missed.
//!
//! # Example
//!
//! ```no_run
//! use ardea_metastore::etcd::EtcdState;
//! use ardea_metastore::{Expected, StateManager, StateOptions, StatePath};
//!
//! # async fn example() -> ardea_core::Result<()> {
//! let servers = ["10.0.0.7:2379".to_string(), "10.0.0.8:2379".to_string()];
//! let root = StatePath::parse("/prod")?;
//! let state = EtcdState::connect(&servers, &root, StateOptions::default()).await?;
//! state.set(&StatePath::parse("/jobs/wordcount/scheduler")?, b"slurm", Expected::Any).await?;
//! # Ok(())
//! # }
//! ```

mod change;
mod failure;
mod follow;
mod keys;
mod lease;
mod link;
mod state;

pub use state::EtcdState;
