//! The state manager that keeps its tree in ZooKeeper.
//!
//! [`ZooKeeperState`] is a [`StateManager`](crate::StateManager) over a ZooKeeper ensemble, tried with 3.9.
//! Nodes of the tree are znodes of the same names below the root, so that ZooKeeper's own tools show them.
//!
//! # Invariants
//!
//! * A version is the id of the transaction that wrote the node (`mzxid`), which ZooKeeper never gives twice.
//! * A conditional change is sound although ZooKeeper compares only a counter that begins again at zero when a node is
//!   deleted and made anew: every creation below the root also writes the hidden znode `.births`, in one transaction,
//!   and every conditional change also checks that there was none since the node was looked at.
//! * A session is a connection of its own. Its owner is told that it has ended before the server can let its nodes
//!   go: a connection that is lost for half of the session timeout is given up.
//! * Reads go through the leader's queue (`sync`), so that they are as new as what anybody was answered.
//!
//! # Example
//!
//! ```no_run
//! use ardea_metastore::{Expected, StateManager, StateOptions, StatePath};
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
mod failure;
mod follow;
mod link;
mod session;
mod state;

pub use state::ZooKeeperState;
