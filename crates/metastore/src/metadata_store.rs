//! The interface of a metadata store.

use crate::{Expected, Node, Session, SessionEnding, StatePath, Version, Watcher};
use ardea_core::Result;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// A boxed future, returned by the operations of a metadata store.
///
/// The implementation is chosen by the configuration, so the trait must be usable as
/// `dyn MetadataStore`, which `async fn` does not allow. An implementation writes
/// `Box::pin(async move { … })`. The cost of the allocation is negligible.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A tree of small values that outlives every process of the cluster.
///
/// Object-safe: a cluster holds an `Arc<dyn MetadataStore>`. All methods must be called on a tokio
/// runtime with time and I/O enabled. Every call waits for an unreachable server, with reconnects,
/// until the timeout of its [`StateOptions`](crate::StateOptions).
///
/// # Errors of every method
///
/// - [`StateUnavailable`](ardea_core::ErrorCode::StateUnavailable): no response in time; nothing
///   was changed.
/// - [`OutcomeUnknown`](ardea_core::ErrorCode::OutcomeUnknown) (changes only): the connection broke
///   before the response arrived. The change may have been made, or may still be made. The caller
///   should read the node, then decide. A conditional change may simply be retried, because it
///   can't happen twice.
/// - [`MetastoreRefused`](ardea_core::ErrorCode::MetastoreRefused): the tree does not allow the
///   operation, the server denies access, or data needed by every change of the root is damaged.
/// - [`MetastoreCorrupt`](ardea_core::ErrorCode::MetastoreCorrupt): the stored data is not a valid
///   node, or can't be read from the disk. Other nodes are not affected: the parent lists the node,
///   and nodes below it can be read. `set` and `delete` repair the node with [`Expected::Damaged`],
///   which fails if the node was repaired meanwhile, or with [`Expected::Any`].
///
/// Dropping the future of a change before it completes has the same effect as `OutcomeUnknown`.
pub trait MetadataStore: Send + Sync + fmt::Debug {
    /// Returns the kind and address of this store, for messages:
    /// `etcd at 10.0.0.7:2379, root /prod`.
    fn place(&self) -> &str;

    /// Returns the node, or `None` if there is none. The root has no value.
    ///
    /// The result includes all changes that were acknowledged to any client before the call.
    fn get<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Option<Node>>;

    /// Writes a node and returns its new version. Missing ancestors are created, without a value,
    /// in the same step. A node of a session keeps its session.
    ///
    /// Fails with [`MetastoreConflict`](ardea_core::ErrorCode::MetastoreConflict) if the node is
    /// not as expected; then nothing has changed. Values have at most
    /// [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES).
    fn set<'a>(
        &'a self,
        path: &'a StatePath,
        value: &'a [u8],
        expected: Expected,
    ) -> Pending<'a, Version>;

    /// Deletes a node without children. Succeeds if there is no such node and `expected` allows
    /// that.
    ///
    /// Fails with [`MetastoreConflict`](ardea_core::ErrorCode::MetastoreConflict) if the node is
    /// not as expected; then nothing has changed.
    fn delete<'a>(&'a self, path: &'a StatePath, expected: Expected) -> Pending<'a, ()>;

    /// Returns the names of the children, sorted; empty if there is no such node.
    fn children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Vec<String>>;

    /// Watches one node, which need not exist. The current state comes first.
    fn watch_node<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Option<Node>>>;

    /// Watches the names of a node's children; the node need not exist. The current state comes
    /// first. Changes of the children's values are not reported.
    fn watch_children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Vec<String>>>;

    /// Opens a session. Its nodes are deleted when it is closed or dropped, when this process dies,
    /// and when the connection is lost for longer than the session timeout of the
    /// [`StateOptions`](crate::StateOptions).
    ///
    /// A session outlives the metadata store that it was opened with.
    fn open_session(&self) -> Pending<'_, (Box<dyn Session>, SessionEnding)>;
}
