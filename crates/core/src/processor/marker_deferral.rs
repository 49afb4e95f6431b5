//! Markers that wait for records in another process.

use crate::{Marker, Result};

/// The interface of a processor whose records may be in another process when a marker arrives.
pub trait MarkerDeferral {
    /// Defers [`Marker::Idle`], [`Marker::Latency`] or [`Marker::BatchEnd`] until all records
    /// before it have returned. Returns true if the processor emits the marker later. Otherwise
    /// the runtime passes it on. A latency marker may be lost.
    ///
    /// # Errors
    /// The marker cannot be passed to the other process; the job fails.
    fn defer(&mut self, marker: Marker) -> Result<bool>;
}
