//! Markers that wait for records in another process.

use crate::Marker;

/// The interface of a processor whose records may be in another process when a marker arrives.
pub trait MarkerDeferral {
    /// Defers [`Marker::Idle`] or [`Marker::Latency`] until all records before it have returned.
    /// Returns true if the processor emits the marker later. Otherwise the runtime passes it on.
    fn defer(&mut self, marker: Marker) -> bool;
}
