//! What a cluster has to remember: the state manager's interface, and its keeper for one machine.
//!
//! A state manager is a small tree that outlives every process of a cluster (Heron's State Manager, "Twitter Heron:
//! Towards Extensible Streaming Engines", section IV-C). It holds what a job is, where its containers are, and who
//! leads. A node has a path, a value and a version; it can be watched; and it can be tied to a session, so that it
//! goes when its owner does. The trait is [`StateManager`]; [`FileState`] keeps the tree in a directory of one
//! machine, and `zookeeper` and `etcd` (features) keep it on servers. One suite,
//! `conformance` (behind the feature of that name), says what all of them promise, and checks it.
//!
//! # Main types
//!
//! * [`StatePath`]: where a node is; whoever holds one holds a valid one.
//! * [`Node`], [`Version`], [`Expected`]: what is there, when it was written, and what a writer counts on.
//! * [`StateManager`]: get, set, delete, children, watch, open a session. [`look`], [`Found`]: get, for whoever mends
//!   what is damaged.
//! * [`Watcher`]: the present state of something, and then each newer one.
//! * [`Session`], [`SessionEnding`]: nodes that go with their owner, and the one message that says so.
//! * [`StateUrl`], [`StateOptions`]: which state manager, where, with which patience.
//! * [`layout`]: where the cluster keeps what. [`dump`]: the whole [`Tree`], to be looked at.
//!
//! # Invariants
//!
//! * **A version is given once.** Every change under a root has a version greater than every change before it, of
//!   whichever node, deleted ones included. It can be used as a fencing token.
//! * **A conditional change happens only if its condition holds at that moment.** There is no window between.
//! * **A node other than the root has a parent.** A change that needs ancestors makes them, empty, in the same step;
//!   a node with children can't be deleted; a node of a session has no children.
//! * **A watcher never misses the last state.** It may miss states between; after a lost connection it is told the
//!   present state.
//! * **An owner is told that its session has ended once, and not later than anybody else can see it.**
//! * **Nothing is half done.** A change is there in whole or not at all, whichever process dies when. When its answer
//!   was lost, the error says so ([`ErrorCode::StateUnknown`](ardea_core::ErrorCode::StateUnknown)).
//!
//! # Example
//!
//! ```
//! use ardea_metastore::{Expected, FileState, StateManager, StateOptions, StatePath};
//!
//! # fn main() -> ardea_core::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
//! # runtime.block_on(async {
//! let state = FileState::open(folder.path(), StateOptions::default()).await?;
//! let path = StatePath::parse("/jobs/wordcount/scheduler")?;
//!
//! let first = state.set(&path, b"local", Expected::Absent).await?;
//! let second = state.set(&path, b"slurm", Expected::Version(first)).await?;
//! assert!(second > first);
//!
//! // Somebody who has not seen the second write can't overwrite it.
//! assert!(state.set(&path, b"yarn", Expected::Version(first)).await.is_err());
//!
//! let node = state.get(&path).await?.expect("it was just set");
//! assert_eq!(&*node.value, b"slurm");
//! # Ok(())
//! # })
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

mod node;
mod path;

mod found;
mod manager;
mod session;
mod watcher;

mod failure;
mod options;
mod patience;
mod url;

mod dump;
pub mod layout;

mod file;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use dump::{Tree, dump};
pub use failure::{Place, is_for_want_of_room};
pub use file::FileState;
pub use found::{Found, look};
pub use manager::{Pending, StateManager};
pub use node::{Expected, MAX_VALUE_BYTES, Node, SessionId, Version};
pub use options::StateOptions;
pub use path::StatePath;
pub use patience::Patience;
pub use session::{EndTeller, Session, SessionEnd, SessionEnding, session_ending};
pub use url::{StateUrl, StoreKind};
pub use watcher::{WatchFeed, Watcher, watch};
