//! What windows emit.

use ardea_core::Timestamp;
use serde::{Deserialize, Serialize};

/// Why a window's result came when it came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Firing {
    /// Before the window was closed, because a trigger said so: what it holds so far.
    Early,
    /// When the watermark reached the window's end.
    OnTime,
    /// After the window was closed, because a record came within the allowed lateness: takes the place of what this
    /// window gave before for this key, or is the first if it gave nothing.
    Update,
}

/// The result of a window for one key. Its event time is the last microsecond of the window.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WindowResult<K, R> {
    /// The first time in the window.
    pub start: Timestamp,
    /// The first time after the window.
    pub end: Timestamp,
    /// Whose records they were; `()` if the stream is not grouped.
    pub key: K,
    /// The result of all records of the window and key.
    pub value: R,
    /// Why it came now.
    pub firing: Firing,
}

/// The event time of a result whose window ends at `end`.
#[inline]
pub(crate) fn result_time(end: Timestamp) -> Timestamp {
    Timestamp::from_micros(end.as_micros().saturating_sub(1))
}
