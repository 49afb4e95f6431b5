//! Writing a cut.

use crate::state::{StateChunk, StateEntry};
use crate::{Epoch, PartitionId, Result};

/// A cut that an instance is asked for: its state at the end of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Which epoch has ended.
    pub epoch: Epoch,
    /// None of a full cut, which holds all state. Of an increment the epoch since whose cut all changes are to be in it: the latest
    /// that the instance has been told is [committed](crate::Processor::on_epoch_committed).
    pub since: Option<Epoch>,
    /// The instance has ended, in the middle of this epoch, and what it leaves counts in all later ones as well.
    pub is_last: bool,
}

impl Cut {
    /// A cut of all state at the end of this epoch.
    pub const fn full(epoch: Epoch) -> Cut {
        Cut {
            epoch,
            since: None,
            is_last: false,
        }
    }

    /// A cut of what has changed since the one of the epoch `since`.
    pub const fn changes(epoch: Epoch, since: Epoch) -> Cut {
        Cut {
            epoch,
            since: Some(since),
            is_last: false,
        }
    }

    /// Whether it holds all state.
    pub const fn is_full(self) -> bool {
        self.since.is_none()
    }
}

/// What a processor writes its cut with, for the length of one call.
///
/// It asks [`has_room`](Self::has_room) before each entry, and returns when there is none: it is called again, while records go on.
///
/// ```
/// use ardea_core::{CutWriter, Progress, Result, StateChunk};
///
/// /// Writes the numbers from `next` on.
/// fn write(next: &mut u8, writer: &mut CutWriter<'_>) -> Result<Progress> {
///     while *next < 100 && writer.has_room() {
///         writer.set("numbers", None, &[*next], b"x")?;
///         *next += 1;
///     }
///     Ok(Progress::done_if(*next == 100))
/// }
///
/// let (mut chunk, mut next) = (StateChunk::default(), 0);
/// assert!(!write(&mut next, &mut CutWriter::new(&mut chunk, 100))?.done);
/// assert!(write(&mut next, &mut CutWriter::new(&mut chunk, 10_000))?.done);
/// assert_eq!(chunk.len(), 100);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct CutWriter<'a> {
    chunk: &'a mut StateChunk,
    limit: usize,
}

impl<'a> CutWriter<'a> {
    /// For the runtime: appends to `chunk`, until that has so many bytes.
    pub fn new(chunk: &'a mut StateChunk, limit: usize) -> Self {
        CutWriter { chunk, limit }
    }

    /// Whether another entry may be written in this call. One that is larger than the room is taken all the same.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.chunk.byte_len() < self.limit
    }

    /// Writes that the key of this state has this value.
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

    /// Writes that the key of this state has been removed. Not needed in a full cut.
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

    /// Says that of this state nothing counts any more that this instance, or another one whose partitions it has, wrote in a cut before that epoch of this
    /// life, or in any of an earlier life. That epoch is the cut's own at the latest. Keys that are there have to be removed all the same.
    ///
    /// Where all instances say so, snapshots let go of what is that old, and need not read and write it again with what is newer. It is for state that is
    /// written anew all the time, as that of windows.
    ///
    /// # Errors
    /// As [`StateChunk::outdate`].
    pub fn outdate(&mut self, state: &str, before: Epoch) -> Result<()> {
        self.chunk.outdate(state, before)
    }

    /// Writes an entry that is there as bytes.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn copy(&mut self, entry: StateEntry<'_>) -> Result<()> {
        self.chunk.push(entry)
    }

    /// Writes an entry whose key and value are written in place by these functions, which append.
    ///
    /// # Errors
    /// Theirs, and [`ErrorCode::LimitReached`](crate::ErrorCode::LimitReached) for a key or value of 4 GB. Nothing has been written then.
    pub fn write(
        &mut self,
        state: &str,
        partition: Option<PartitionId>,
        key: impl FnOnce(&mut Vec<u8>) -> Result<()>,
        value: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        self.chunk.write(state, partition, key, value)
    }

    /// The chunk that is written to.
    pub fn chunk(&mut self) -> &mut StateChunk {
        self.chunk
    }
}
