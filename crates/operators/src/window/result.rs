//! Window results.

use ardea_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::KeyedFold;

/// The event that caused a window result to be emitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Firing {
    /// A preliminary result before the window was closed, caused by a trigger.
    Early,
    /// The result when the watermark reached the window's end.
    OnTime,
    /// A corrected result after the window was closed, caused by a record within the allowed
    /// lateness. It replaces the previous result of this window and key, if there was one.
    Update,
}

/// The result of a window for one key. Its event time is the last microsecond of the window.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WindowResult<K, R> {
    /// The first time in the window.
    pub start: Timestamp,
    /// The first time after the window.
    pub end: Timestamp,
    /// The key of the records; `()` if the stream is not keyed.
    pub key: K,
    /// The result of all records of the window and key.
    pub value: R,
    /// The event that caused the result to be emitted.
    pub firing: Firing,
}

/// The result type of a fold's windows.
pub(crate) type ResultOf<F> = WindowResult<<F as KeyedFold>::Key, <F as KeyedFold>::Out>;

/// Returns the event time of the result of a window that ends at `end`.
#[inline]
pub(crate) fn result_time(end: Timestamp) -> Timestamp {
    Timestamp::from_micros(end.as_micros().saturating_sub(1))
}
