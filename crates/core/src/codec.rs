//! Serialization of the chunks of an edge between processes.

use crate::{Chunk, Result};

/// A type-erased codec of an edge, called once per chunk at both ends of an edge between two
/// processes.
///
/// An edge with a codec may lead from one process to another; see
/// [`Edge::codec`](crate::Edge::codec).
pub trait ChunkCodec: Send + Sync {
    /// Encodes records from the front of `chunk` to the end of `out`, up to about `limit` bytes,
    /// and removes them from `chunk`. Returns their number: at least one if the chunk is not empty.
    ///
    /// # Errors
    /// If the chunk holds records of another type, or a record that can't be encoded.
    fn encode(&self, chunk: &mut Chunk, limit: usize, out: &mut Vec<u8>) -> Result<usize>;

    /// Appends the `records` records of a payload to `chunk`.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`](crate::ErrorCode::BadRecord) if the payload is invalid, or does not
    /// hold `records` records.
    fn decode(&self, records: usize, payload: &[u8], chunk: &mut Chunk) -> Result<()>;
}
