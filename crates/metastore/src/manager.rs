//! The interface of a state manager.

use crate::{Expected, Node, Session, SessionEnding, StatePath, Version, Watcher};
use ardea_core::Result;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// What an operation of a state manager returns: a future in a box.
///
/// The trait has to be usable as `dyn StateManager`, because which one it is comes from the configuration; a trait
/// with `async fn` can't be. So each method returns its future boxed, which an implementation writes as
/// `Box::pin(async move { … })`. An allocation is nothing beside what a state manager does.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A tree of small values that outlives every process of the cluster.
///
/// Object-safe: a cluster holds an `Arc<dyn StateManager>`. All methods have to be called on a tokio runtime with time
/// and I/O enabled. Every call waits for a server that is away, reconnects as often as it takes, and gives up after
/// the patience of its [`StateOptions`](crate::StateOptions).
///
/// # Errors of every method
///
/// * [`StateUnavailable`](ardea_core::ErrorCode::StateUnavailable): no answer in time; nothing was changed.
/// * [`StateUnknown`](ardea_core::ErrorCode::StateUnknown) (changes only): the connection broke before the answer came.
///   The change was made, or not, or will be in a moment. Read, then decide. A conditional change may simply be tried
///   again: it can't happen twice.
/// * [`StateRefused`](ardea_core::ErrorCode::StateRefused): the tree does not allow it, the server denies it, or what the
///   whole root needs to be changed is damaged.
/// * [`StateCorrupt`](ardea_core::ErrorCode::StateCorrupt): what is stored there is no node, or the disk can't read it. That
///   concerns this node alone: its parent lists it, others are read, and what is below it as well. `set` and `delete` mend
///   it with [`Expected::Damaged`], which spares what somebody else has mended meanwhile, and with [`Expected::Any`].
///
/// Dropping the future of a change before it is ready has the effect of `StateUnknown`.
pub trait StateManager: Send + Sync + fmt::Debug {
    /// Which kind of state manager this is, and where, for messages: `etcd at 10.0.0.7:2379, root /prod`.
    fn place(&self) -> &str;

    /// The node, or `None` if there is none. The root has no value.
    ///
    /// What is read is no older than any change that had been answered, to whomever, before the call.
    fn get<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Option<Node>>;

    /// Writes a node and returns its new version. Ancestors that are missing are made, without a value, in the same
    /// step. A node of a session stays one.
    ///
    /// Fails with [`StateConflict`](ardea_core::ErrorCode::StateConflict) if the node is not as expected; then nothing
    /// has changed. Values have at most [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES).
    fn set<'a>(
        &'a self,
        path: &'a StatePath,
        value: &'a [u8],
        expected: Expected,
    ) -> Pending<'a, Version>;

    /// Removes a node that has no children. That there is none is fine, if it may be as expected.
    ///
    /// Fails with [`StateConflict`](ardea_core::ErrorCode::StateConflict) if the node is not as expected; then nothing
    /// has changed.
    fn delete<'a>(&'a self, path: &'a StatePath, expected: Expected) -> Pending<'a, ()>;

    /// The names of the nodes right below this one, sorted; none if there is no such node.
    fn children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Vec<String>>;

    /// Watches one node, whether it exists or not. The present state comes first.
    fn watch_node<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Option<Node>>>;

    /// Watches which nodes are right below this one, whether it exists or not. The present state comes first.
    /// Changes of the children's values are not told.
    fn watch_children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Vec<String>>>;

    /// Opens a session. Its nodes go when it is closed or dropped, when this process dies, and when the connection is
    /// lost for longer than the session timeout of the [`StateOptions`](crate::StateOptions).
    ///
    /// A session outlives the state manager that it was opened with.
    fn open_session(&self) -> Pending<'_, (Box<dyn Session>, SessionEnding)>;
}
