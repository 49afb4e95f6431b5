//! The snapshot request and the snapshot writer.

use crate::state::{StateChunk, StateEntry};
use crate::{Epoch, PartitionId, Result};

/// A request for a snapshot of an instance's state at the end of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotRequest {
    /// The epoch that has ended.
    pub epoch: Epoch,
    /// The base of an increment: the latest epoch whose
    /// [commit](crate::Checkpointed::on_checkpoint_committed) the instance was notified of. The
    /// snapshot must include all changes since the snapshot of that epoch. `None` for a full
    /// snapshot.
    pub since: Option<Epoch>,
    /// True if the instance has ended, in the middle of this epoch; the snapshot is then valid for
    /// all later epochs as well.
    pub is_last: bool,
}

impl SnapshotRequest {
    /// Creates a request for a full snapshot at the end of this epoch.
    pub const fn full(epoch: Epoch) -> SnapshotRequest {
        SnapshotRequest {
            epoch,
            since: None,
            is_last: false,
        }
    }

    /// Creates a request for an increment since the snapshot of the epoch `since`.
    pub const fn changes(epoch: Epoch, since: Epoch) -> SnapshotRequest {
        SnapshotRequest {
            epoch,
            since: Some(since),
            is_last: false,
        }
    }

    /// Returns true if all state is requested.
    pub const fn is_full(self) -> bool {
        self.since.is_none()
    }
}

/// The writer of a snapshot, for one call of `write_snapshot`.
///
/// A processor checks [`has_room`](Self::has_room) before each entry and returns when there is no
/// room. It is called again between records.
///
/// ```
/// use ardea_core::{SnapshotWriter, Progress, Result, StateChunk};
///
/// /// Writes the numbers from `next` on.
/// fn write(next: &mut u8, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
///     while *next < 100 && writer.has_room() {
///         writer.set("numbers", None, &[*next], b"x")?;
///         *next += 1;
///     }
///     Ok(Progress::done_if(*next == 100))
/// }
///
/// let (mut chunk, mut next) = (StateChunk::default(), 0);
/// assert!(!write(&mut next, &mut SnapshotWriter::new(&mut chunk, 100))?.done);
/// assert!(write(&mut next, &mut SnapshotWriter::new(&mut chunk, 10_000))?.done);
/// assert_eq!(chunk.len(), 100);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct SnapshotWriter<'a> {
    chunk: &'a mut StateChunk,
    limit: usize,
}

impl<'a> SnapshotWriter<'a> {
    /// For the runtime: creates a writer that appends to `chunk` until it has `limit` bytes.
    pub fn new(chunk: &'a mut StateChunk, limit: usize) -> Self {
        SnapshotWriter { chunk, limit }
    }

    /// Returns true if another entry may be written in this call. An entry larger than the room is
    /// accepted.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.chunk.byte_len() < self.limit
    }

    /// Writes an entry with a key and its value.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn set(
        &mut self,
        state: &str,
        partition: Option<PartitionId>,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.copy(StateEntry {
            state,
            partition,
            key,
            value: Some(value),
        })
    }

    /// Writes a tombstone for a removed key. Not needed in a full snapshot.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn remove(
        &mut self,
        state: &str,
        partition: Option<PartitionId>,
        key: &[u8],
    ) -> Result<()> {
        self.copy(StateEntry {
            state,
            partition,
            key,
            value: None,
        })
    }

    /// Declares older entries of this state outdated: those that this instance, or earlier owners
    /// of its partitions, wrote in a snapshot before the epoch `before` of this attempt, or in any
    /// earlier attempt. `before` is at most the snapshot's own epoch. Existing keys must be removed
    /// explicitly all the same.
    ///
    /// If all instances do so, checkpoints drop the outdated entries without compacting them with
    /// newer ones. This suits state that is replaced continuously, such as that of windows.
    ///
    /// # Errors
    /// As [`StateChunk::outdate`].
    pub fn outdate(&mut self, state: &str, before: Epoch) -> Result<()> {
        self.chunk.outdate(state, before)
    }

    /// Writes an encoded entry.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn copy(&mut self, entry: StateEntry<'_>) -> Result<()> {
        self.chunk.push(entry)
    }

    /// Writes an entry; `key` and `value` append to the buffer in place.
    ///
    /// # Errors
    /// Errors of `key` and `value`, and [`ErrorCode::LimitReached`](crate::ErrorCode::LimitReached)
    /// for a key or value of 4 GB. Then nothing is written.
    pub fn write(
        &mut self,
        state: &str,
        partition: Option<PartitionId>,
        key: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        value: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        self.chunk.write(state, partition, key, value)
    }

    /// Returns the chunk that is written to.
    pub fn chunk(&mut self) -> &mut StateChunk {
        self.chunk
    }
}
