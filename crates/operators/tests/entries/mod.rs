//! The state of vertices in tests.

use std::collections::BTreeMap;

use ardea_core::{PartitionId, StateChunk, StateEntry};

/// All entries of a vertex, by state, partition and key.
pub type Entries = BTreeMap<(String, Option<PartitionId>, Vec<u8>), Vec<u8>>;

/// Returns all entries as a chunk to restore.
pub fn chunk_of(entries: &Entries) -> StateChunk {
    let mut chunk = StateChunk::default();
    for ((state, partition, key), value) in entries {
        let (partition, value) = (*partition, Some(&**value));
        let entry = StateEntry {
            state,
            partition,
            key,
            value,
        };
        chunk.push(entry).unwrap();
    }
    chunk
}
