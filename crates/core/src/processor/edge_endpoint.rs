//! Processors of the runtime that stand for something in another process.

use crate::{Result, Timestamp};

/// A processor that represents an edge or an instance in another process. Only for processors of
/// the runtime.
pub trait EdgeEndpoint {
    /// Handles idleness of all inputs, which then do not hold back the watermark. Returns true if
    /// the processor passes the marker on itself, behind records that are still in another process;
    /// the runtime then does not.
    fn on_idle(&mut self) -> bool {
        false
    }

    /// Handles a [`Marker::Latency`](crate::Marker::Latency) created at `born`. Returns true if the
    /// processor forwards the marker itself, now or later; the runtime then does not. A
    /// marker may be lost.
    fn on_latency(&mut self, born: Timestamp) -> Result<bool> {
        let _ = born;
        Ok(false)
    }

    /// Flushes data that was batched over several calls, at the end of a slice. Only for the
    /// sending ends of edges between processes.
    fn on_slice_end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A processor whose work is done in this process.
#[derive(Clone, Copy, Default, Debug)]
pub struct LocalProcessor;

impl EdgeEndpoint for LocalProcessor {}
