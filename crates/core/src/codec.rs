//! How the chunks of an edge become bytes, for where they leave the process.

use crate::{Chunk, Result};

/// The codec of an edge, erased: what the ends of an edge between two processes call, once a chunk.
///
/// An edge that has one may lead from one process to another; see [`Edge::codec`](crate::Edge::codec).
pub trait ChunkCodec: Send + Sync {
    /// Moves records from the front of `chunk` to the end of `out`, as many as take about `limit` bytes; how many, at least one if
    /// there is one.
    ///
    /// # Errors
    /// If the chunk holds records of another type, or one that can't be encoded.
    fn encode(&self, chunk: &mut Chunk, limit: usize, out: &mut Vec<u8>) -> Result<usize>;

    /// Appends the `records` records of a payload to `chunk`.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`](crate::ErrorCode::BadRecord) if the payload holds none such, or not as many.
    fn decode(&self, records: usize, payload: &[u8], chunk: &mut Chunk) -> Result<()>;
}
