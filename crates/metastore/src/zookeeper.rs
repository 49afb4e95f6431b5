//! The metadata store in ZooKeeper.
//!
//! [`ZooKeeperState`] is a [`MetadataStore`](crate::MetadataStore) over a ZooKeeper ensemble,
//! tested with 3.9. Nodes of the tree are znodes of the same names below the root, so ZooKeeper's
//! own tools show them.
//!
//! # Invariants
//!
//! - A version is the id of the transaction that wrote the node (`mzxid`), which ZooKeeper never
//!   uses twice.
//! - ZooKeeper compares only a counter that restarts at zero when a node is deleted and recreated.
//!   Conditional changes are sound nevertheless: every creation below the root also writes the
//!   hidden znode `.births`, in one transaction, and every conditional change checks that `.births`
//!   was not written since the node was read.
//! - Every session has a separate connection. Its owner is notified of the end before the server
//!   can delete its nodes: a connection that is lost for half of the session timeout is abandoned.
//! - Reads go through the leader's queue (`sync`), so they include all acknowledged changes.
//!
//! # Example
//!
//! ```no_run
//! use ardea_metastore::{Expected, MetadataStore, StateOptions, StatePath};
//! use ardea_metastore::zookeeper::ZooKeeperState;
//!
//! # async fn example() -> ardea_core::Result<()> {
//! let servers = ["10.0.0.7:2181".to_string(), "10.0.0.8:2181".to_string()];
//! let root = StatePath::parse("/ardea/prod")?;
//! let state = ZooKeeperState::connect(&servers, &root, StateOptions::default()).await?;
//! state.set(&StatePath::parse("/jobs/wordcount/scheduler")?, b"slurm", Expected::Any).await?;
//! # Ok(())
//! # }
//! ```

mod change;
mod connection;
mod failure;
mod session;
mod state;
mod watch;

pub use state::ZooKeeperState;
