//! Window results as changes to a table.

use std::fmt::Debug;

use ardea_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::window::WindowResult;

/// A change to a table with a row per key and window.
///
/// The changes of a key, applied in order, leave exactly the final windows in the table, each with
/// its final value. A row can be identified by its key and start alone: two windows of a key never
/// have the same start at the same time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum WindowChange<K, R> {
    /// The result of a window: inserts or replaces its row.
    Upsert(WindowResult<K, R>),
    /// Deletes the row of an emitted window that no longer exists, as its session was merged into
    /// another. The result of the merged session follows.
    Delete {
        /// The start of the deleted window.
        start: Timestamp,
        /// The end of the deleted window.
        end: Timestamp,
        /// The key of the deleted window.
        key: K,
    },
}

impl<K, R> WindowChange<K, R> {
    /// Returns the key of the window.
    pub fn key(&self) -> &K {
        match self {
            WindowChange::Upsert(result) => &result.key,
            WindowChange::Delete { key, .. } => key,
        }
    }

    /// Returns the start of the window.
    pub fn start(&self) -> Timestamp {
        match self {
            WindowChange::Upsert(result) => result.start,
            WindowChange::Delete { start, .. } => *start,
        }
    }

    /// Returns the result, or `None` for a deletion.
    pub fn into_result(self) -> Option<WindowResult<K, R>> {
        match self {
            WindowChange::Upsert(result) => Some(result),
            WindowChange::Delete { .. } => None,
        }
    }
}

/// The kind of records that session windows emit: [`EmitResults`] or [`EmitChanges`].
pub trait SessionOutput<K, R>: Debug + Send + Sync + 'static {
    /// The emitted records.
    type Record: Send + 'static;

    /// Returns the record for a result.
    fn result(result: WindowResult<K, R>) -> Self::Record;

    /// Returns the record for the deletion of the window of `key` from `start` to `end`, if this
    /// output has one.
    fn deletion(window: (Timestamp, Timestamp), key: &K) -> Option<Self::Record>;
}

/// Emits each result as a [`WindowResult`]. An update of a session replaces all earlier results of
/// its key within the session.
#[derive(Debug)]
pub enum EmitResults {}

/// Emits [`WindowChange`]s, which name the results that a session replaces.
#[derive(Debug)]
pub enum EmitChanges {}

impl<K: Send + 'static, R: Send + 'static> SessionOutput<K, R> for EmitResults {
    type Record = WindowResult<K, R>;

    #[inline]
    fn result(result: WindowResult<K, R>) -> WindowResult<K, R> {
        result
    }

    #[inline]
    fn deletion(_: (Timestamp, Timestamp), _: &K) -> Option<WindowResult<K, R>> {
        None
    }
}

impl<K: Clone + Send + 'static, R: Send + 'static> SessionOutput<K, R> for EmitChanges {
    type Record = WindowChange<K, R>;

    fn result(result: WindowResult<K, R>) -> WindowChange<K, R> {
        WindowChange::Upsert(result)
    }

    fn deletion((start, end): (Timestamp, Timestamp), key: &K) -> Option<WindowChange<K, R>> {
        let key = key.clone();
        Some(WindowChange::Delete { start, end, key })
    }
}
