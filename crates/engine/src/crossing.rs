//! The seam between a job's edges and whatever carries them to other processes.

use ardea_core::{EdgeId, Processor, Result};

use crate::Site;

/// Makes the ends of edges that lead to other processes, or come from there.
///
/// The engine runs both ends as tasklets of their own, one for each edge and other process, joined to the instances here by the same
/// queues as instances are joined to each other. So routing, batching and backpressure are the same wherever a consumer lives.
pub trait Crossings: Send + Sync {
    /// Takes what instances here send over `edge` to instances at `to`. Its input *i* holds what is for the consumer's instance *i*;
    /// watermarks, idleness and ends are merged over all producers here, and are for all its instances there.
    ///
    /// # Errors
    /// If the edge has no codec.
    fn sender(&self, edge: EdgeId, to: Site) -> Result<Box<dyn Processor>>;

    /// Gives out what comes over `edge` from `from`. Its output *i* leads to the consumer's instance *i*, which is here.
    ///
    /// # Errors
    /// If the edge has no codec.
    fn receiver(&self, edge: EdgeId, from: Site) -> Result<Box<dyn Processor>>;
}
