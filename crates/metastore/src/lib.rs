//! The metadata store of a cluster: the interface, and an implementation for one machine.
//!
//! A metadata store is a small tree that outlives every process of a cluster (Heron's state
//! manager, "Twitter Heron: Towards Extensible Streaming Engines", section IV-C). It holds the
//! definitions of jobs, the locations of their containers, and their leaders. A node has a path, a
//! value and a version; it can be watched; and it can be tied to a session, so that it is deleted
//! when its owner ends. The trait is [`MetadataStore`]; [`FileState`] stores the tree in a
//! directory of one machine, and `zookeeper` and `etcd` (features) store it on servers. One test
//! suite, `conformance` (behind the feature of that name), specifies and checks the behaviour of
//! all of them.
//!
//! # Main types
//!
//! - [`StatePath`]: the validated path of a node.
//! - [`Node`], [`Version`], [`Expected`]: a node's value, the version of its last write, and the
//!   condition of a change.
//! - [`MetadataStore`]: get, set, delete, children, watch, open a session. [`read_node`],
//!   [`ReadResult`]: get, for callers that repair damaged nodes.
//! - [`Watcher`]: the current state of a node or a list of children, followed by newer ones.
//! - [`Session`], [`SessionEnding`]: nodes that are deleted with their owner, and the notification
//!   of its end.
//! - [`StateUrl`], [`StateOptions`]: the address of a metadata store, and its timeouts.
//! - [`layout`]: the paths of the cluster's nodes. [`dump`]: the whole [`Tree`], for debugging.
//!
//! # Invariants
//!
//! - **Versions are unique and ascending.** Every change under a root has a version greater than
//!   all changes before it, of any node, deleted ones included. A version can be used as a fencing
//!   token.
//! - **A conditional change is atomic.** It happens only if its condition holds at that moment.
//! - **A node other than the root has a parent.** A change creates missing ancestors, empty, in the
//!   same step; a node with children can't be deleted; a node of a session has no children.
//! - **A watcher never misses the last state.** It may miss intermediate states; after a lost
//!   connection it receives the current one.
//! - **An owner is notified once of the end of its session, and not later than any other process
//!   can see it.**
//! - **Changes are all or nothing,** whichever process dies at any time. If the response was lost,
//!   the error reports that ([`ErrorCode::OutcomeUnknown`](ardea_core::ErrorCode::OutcomeUnknown)).
//!
//! # Example
//!
//! ```
//! use ardea_metastore::{Expected, FileState, MetadataStore, StateOptions, StatePath};
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
//! // A writer that has not read the second value can't overwrite it.
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

mod metadata_store;
mod read_result;
mod session;
mod watcher;

mod failure;
mod options;
mod retry_deadline;
mod url;

mod dump;
pub mod layout;

mod file;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use dump::{Tree, dump};
pub use failure::{StoreAddress, is_disk_full};
pub use file::FileState;
pub use metadata_store::{MetadataStore, Pending};
pub use node::{Expected, MAX_VALUE_BYTES, Node, SessionId, Version};
pub use options::StateOptions;
pub use path::StatePath;
pub use read_result::{ReadResult, read_node};
pub use retry_deadline::RetryDeadline;
pub use session::{Session, SessionEnd, SessionEndNotifier, SessionEnding, session_ending};
pub use url::{StateUrl, StoreKind};
pub use watcher::{WatchFeed, Watcher, watch};
