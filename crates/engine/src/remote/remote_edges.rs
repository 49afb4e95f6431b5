//! The interface to the transport of edges between processes.

use std::sync::Arc;

use ardea_core::{EdgeId, Result};

use super::ends::{ReceiveEnd, SendEnd};
use crate::{Site, SourceLog};

/// A factory for the ends of edges to and from other processes.
///
/// Each end runs as a tasklet, one per edge and other process, connected to the instances here by
/// ordinary queues. So routing, batching and backpressure do not depend on the location of a
/// consumer.
///
/// Ends are not polled: they are called when input arrives, when their waker is woken, and at the
/// time that they have requested. All are created on the thread that starts or changes the job, and
/// must not block. An end that is not needed any more may be needed again before it is closed.
pub trait RemoteEdges: Send + Sync {
    /// Creates the sending end for the records of instances here over `edge` to instances at `to`.
    /// Watermarks, idleness and barriers are merged over all producers here, and apply to all
    /// consumers there.
    ///
    /// # Errors
    /// If the edge has no codec.
    fn sender(&self, edge: EdgeId, to: Site) -> Result<Box<dyn SendEnd>>;

    /// Creates the receiving end for the records over `edge` from `from`.
    ///
    /// # Errors
    /// If the edge has no codec.
    fn receiver(&self, edge: EdgeId, from: Site) -> Result<Box<dyn ReceiveEnd>>;

    /// Returns the log of the micro-batches of the sources here, if this process may be restored
    /// alone.
    fn source_log(&self) -> Option<Arc<SourceLog>> {
        None
    }
}
