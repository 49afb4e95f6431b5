//! The metadata store in etcd.
//!
//! [`EtcdState`] is a [`MetadataStore`](crate::MetadataStore) over an etcd cluster, version 3.4 or
//! later. The node `/jobs/a` below the root `/prod` is the key `/prod/2/jobs/a`: because of the
//! depth in front of the path, the children of a node are exactly one range of keys.
//!
//! # Invariants
//!
//! - A version is the revision of the store at which the node was written (`mod_revision`).
//! - Every change is one transaction that includes its condition.
//! - A session is a lease. Its owner renews it three times as often as needed. The owner counts the
//!   time of the lease from the moment at which a renewal was *sent*, so it is notified of the end
//!   before the server can delete the nodes.
//! - A watch starts at the revision that was read. When its stream breaks, stops responding or is
//!   compacted, the node is read again and reported: no lasting state is missed.
//!
//! # Example
//!
//! ```no_run
//! use ardea_metastore::etcd::EtcdState;
//! use ardea_metastore::{Expected, MetadataStore, StateOptions, StatePath};
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
mod connection;
mod failure;
mod keys;
mod lease;
mod state;
mod watch;

pub use state::EtcdState;
