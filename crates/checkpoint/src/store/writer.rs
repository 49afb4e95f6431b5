//! Writer of an instance's snapshot as blocks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ardea_core::{Error, ErrorCode, PartitionId, Result};
use bytes::Bytes;

use crate::store::block::{
    self, BlockRef, ContentBuilder, KEY_MOST_BYTES, Subject, VALUE_MOST_BYTES,
};
use crate::store::block_compressor::Packer;
use crate::store::failure::too_large;
use crate::store::file_name::{BlockName, FileName, WriterToken};
use crate::store::partitions::Space;
use crate::store::yield_pacer::YieldPacer;
use crate::store::{CheckpointId, ObjectStore, SnapshotKind, SnapshotOwner, StateHandle};

/// The number of entries whose memory is prefetched together. In sorted order, entries are
/// scattered over the buffer, and separate cache misses would be slow.
const FETCHED_TOGETHER: usize = 32;
/// The maximum length of a job, vertex or state name in bytes.
const NAME_MOST_BYTES: usize = 4_096;

/// The sizes of blocks and sort buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockConfig {
    /// The approximate size of a block in bytes, before compression. An entry larger than this has
    /// its own block.
    pub block_bytes: usize,
    /// The initial size of the sort buffer in bytes. It doubles after each flush, up to eight times
    /// this size. Small snapshots thus take little memory, and large ones have few sorted runs,
    /// which makes reading and merging cheaper.
    pub buffer_bytes: usize,
}

/// The maximum factor by which the sort buffer grows.
const BUFFER_GROWTH: usize = 8;

/// The default: blocks of 1 MiB, and an initial sort buffer of 16 MiB.
impl Default for BlockConfig {
    fn default() -> Self {
        BlockConfig {
            block_bytes: 1 << 20,
            buffer_bytes: 16 << 20,
        }
    }
}

/// Writer of one instance's snapshot. It takes entries in any order, and returns a handle when all
/// entries are durable.
///
/// Calls block while a full buffer is sorted, compressed and written. A writer dropped before
/// [`finish`](Self::finish) leaves unreferenced blocks, which a later
/// [sweep](crate::store::CheckpointStore::sweep) removes. Use one writer per snapshot; different
/// snapshots can be written concurrently, by any number of processes.
#[derive(Debug)]
pub struct BlockWriter {
    of: SnapshotOwner,
    kind: SnapshotKind,
    config: BlockConfig,
    /// The size in bytes at which the sort buffer is flushed next.
    buffer_bytes: usize,
    began: Instant,
    files: BlockFiles,
    /// The states in order of first use, with their blocks.
    states: Vec<(String, Vec<BlockRef>)>,
    bytes: Vec<u8>,
    entries: Vec<Buffered>,
}

/// An entry in the buffer. The key is at `key_at`, followed by the value.
#[derive(Clone, Copy, Debug)]
struct Buffered {
    /// A sort key: state, space and slot in one number, and the first bytes of the key. Decides
    /// most comparisons.
    order: (u64, u64),
    state: u32,
    space: Space,
    slot: u32,
    key_at: usize,
    key_bytes: u32,
    /// The length of the value; `None` for a tombstone.
    value_bytes: Option<u32>,
}

impl Buffered {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.key_at..][..self.key_bytes as usize]
    }

    fn value<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let length = self.value_bytes? as usize;
        Some(&bytes[self.key_at + self.key_bytes as usize..][..length])
    }

    /// Reads the first and the last byte of the entry, to prefetch its memory.
    fn touch(&self, bytes: &[u8]) -> u8 {
        let length = self.key_bytes as usize + self.value_bytes.unwrap_or(0) as usize;
        let (first, last) = (self.key_at, self.key_at + length.saturating_sub(1));
        [first, last]
            .iter()
            .filter_map(|at| bytes.get(*at))
            .fold(0, |sum, byte| sum ^ byte)
    }

    fn group(&self) -> (u32, Space) {
        (self.state, self.space)
    }
}

impl BlockWriter {
    /// Creates a writer for the snapshot of the instance `of` of `job`.
    ///
    /// # Errors
    /// `Internal` for an [`Unchanged`](SnapshotKind::Unchanged) snapshot (use
    /// [`StateHandle::unchanged`]) or an invalid instance; `LimitReached` if a name is too long.
    pub fn new(
        folder: Arc<dyn ObjectStore>,
        job: &str,
        of: SnapshotOwner,
        kind: SnapshotKind,
        config: BlockConfig,
    ) -> Result<Self> {
        if kind == SnapshotKind::Unchanged || of.instance >= of.instances {
            let what = format!("there is no snapshot {kind:?} of {of:?}");
            return Err(Error::new(ErrorCode::Internal, what));
        }
        check_name("the name of a job", job)?;
        check_name("the name of a vertex", &of.vertex)?;
        let files = BlockFiles::new(folder, job, &of.vertex, of.checkpoint);
        Ok(BlockWriter {
            of,
            kind,
            buffer_bytes: config.buffer_bytes,
            config,
            began: Instant::now(),
            files,
            states: Vec::new(),
            bytes: Vec::new(),
            entries: Vec::new(),
        })
    }

    /// Adds an entry with the value of a key. If a key is added several times, the last entry is
    /// valid.
    ///
    /// # Errors
    /// `LimitReached` for a key or a value that is too large, `Internal` for a partition that a
    /// full snapshot does not own; those of [`ObjectStore::write`]. After an error the snapshot is
    /// invalid.
    pub fn set(
        &mut self,
        state: &str,
        partition: Option<PartitionId>,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.push(state, partition, key, Some(value))
    }

    /// Adds a tombstone for a key, which marks the key as removed.
    ///
    /// # Errors
    /// Those of [`set`](Self::set).
    pub fn remove(
        &mut self,
        state: &str,
        partition: Option<PartitionId>,
        key: &[u8],
    ) -> Result<()> {
        self.push(state, partition, key, None)
    }

    /// Writes the remaining entries, and returns the handle when all entries are durable.
    ///
    /// # Errors
    /// Those of [`ObjectStore::write`]. After an error the snapshot is invalid.
    pub fn finish(mut self) -> Result<StateHandle> {
        self.flush()?;
        let states: BTreeMap<_, _> = self.states.into_iter().collect();
        let took = self.began.elapsed();
        Ok(StateHandle::new(self.of, self.kind, states, took))
    }

    fn push(
        &mut self,
        state: &str,
        partition: Option<PartitionId>,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let (space, slot) = self.slot(partition)?;
        if key.len() > KEY_MOST_BYTES {
            return Err(too_large("a key", key.len(), KEY_MOST_BYTES));
        }
        let value_bytes = value.map_or(0, <[u8]>::len);
        if value_bytes > VALUE_MOST_BYTES {
            return Err(too_large("a value", value_bytes, VALUE_MOST_BYTES));
        }
        let state = self.state(state)?;
        self.files.pace.step();
        let key_at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.entries.push(Buffered {
            order: (place_of(state, space, slot), beginning_of(key)),
            state,
            space,
            slot,
            key_at,
            key_bytes: key.len() as u32,
            value_bytes: value.map(|value| value.len() as u32),
        });
        // The bookkeeping of small entries takes more memory than their bytes.
        let buffered = self.bytes.len() + self.entries.len() * size_of::<Buffered>();
        if buffered >= self.buffer_bytes {
            self.flush()?;
            let most = self.config.buffer_bytes.saturating_mul(BUFFER_GROWTH);
            self.buffer_bytes = self.buffer_bytes.saturating_mul(2).min(most);
        }
        Ok(())
    }

    fn slot(&self, partition: Option<PartitionId>) -> Result<(Space, u32)> {
        let Some(partition) = partition else {
            return Ok((Space::Instances, self.of.instance));
        };
        match self.kind {
            SnapshotKind::Full { partitions } if !partitions.contains(partition) => {
                let index = partition.index();
                let what =
                    format!("an entry of partition {index} in a full snapshot of {partitions:?}");
                Err(Error::new(ErrorCode::Internal, what)
                    .in_vertex(&self.of.vertex, self.of.instance))
            }
            _ => Ok((Space::Partitions, partition.index())),
        }
    }

    fn state(&mut self, name: &str) -> Result<u32> {
        if let Some(found) = self.states.iter().position(|(known, _)| known == name) {
            return Ok(found as u32);
        }
        check_name("the name of a state", name)?;
        self.states.push((name.to_string(), Vec::new()));
        Ok(self.states.len() as u32 - 1)
    }

    /// Sorts the buffered entries and writes them as blocks.
    fn flush(&mut self) -> Result<()> {
        let (bytes, pace) = (&self.bytes, &self.files.pace);
        // The sort is stable: the last of several equal keys stays last.
        self.entries.sort_by(|a, b| {
            pace.step();
            let order = a.order.cmp(&b.order);
            order.then_with(|| a.key(bytes).cmp(b.key(bytes)))
        });
        for group in self.entries.chunk_by(|a, b| a.group() == b.group()) {
            let (name, blocks) = &mut self.states[group[0].state as usize];
            let mut run = Run::new(name, group[0].space, self.config.block_bytes);
            for (at, entry) in group.iter().enumerate() {
                if at % FETCHED_TOGETHER == 0 {
                    self.files.pace.yield_if_due();
                    let soon = group[at..].iter().take(FETCHED_TOGETHER + 1);
                    std::hint::black_box(soon.fold(0, |sum, entry| sum ^ entry.touch(bytes)));
                }
                let is_same = |next: &Buffered| {
                    next.order == entry.order && next.key(bytes) == entry.key(bytes)
                };
                if !group.get(at + 1).is_some_and(is_same) {
                    let (key, value) = (entry.key(bytes), entry.value(bytes));
                    run.push(&mut self.files, entry.slot, key, value)?;
                }
            }
            blocks.extend(run.finish(&mut self.files)?);
        }
        self.bytes.clear();
        self.entries.clear();
        self.files.flush()
    }
}

/// Packs state, space and slot into one number with the same order.
fn place_of(state: u32, space: Space, slot: u32) -> u64 {
    let space = u64::from(space == Space::Instances);
    (u64::from(state) << 33) | (space << 32) | u64::from(slot)
}

/// Returns the first bytes of a key as a number with the same order. Equal numbers do not imply
/// equal keys.
fn beginning_of(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = key.len().min(first.len());
    first[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(first)
}

fn check_name(what: &str, name: &str) -> Result<()> {
    if name.len() > NAME_MOST_BYTES {
        return Err(too_large(what, name.len(), NAME_MOST_BYTES));
    }
    Ok(())
}

/// Writer of blocks under unique names.
pub(crate) struct BlockFiles {
    folder: Arc<dyn ObjectStore>,
    subject: Subject,
    writer: WriterToken,
    next: u32,
    packer: Packer,
    pace: YieldPacer,
    /// Blocks not written yet.
    ready: Vec<(FileName, Bytes)>,
}

impl BlockFiles {
    /// Creates a writer for blocks of a vertex in `checkpoint`.
    pub fn new(
        folder: Arc<dyn ObjectStore>,
        job: &str,
        vertex: &str,
        checkpoint: CheckpointId,
    ) -> Self {
        BlockFiles {
            folder,
            subject: Subject {
                job: job.to_string(),
                checkpoint,
                vertex: vertex.to_string(),
                state: String::new(),
            },
            writer: WriterToken::fresh(),
            next: 0,
            packer: Packer::default(),
            pace: YieldPacer::begin(),
            ready: Vec::new(),
        }
    }

    pub fn writer(&self) -> WriterToken {
        self.writer
    }

    pub fn pace(&self) -> &YieldPacer {
        &self.pace
    }

    /// Writes all pending blocks.
    pub fn flush(&mut self) -> Result<()> {
        self.folder.write_all(&self.ready)?;
        self.ready.clear();
        Ok(())
    }

    /// Encodes a block, which the next [`flush`](Self::flush) writes.
    fn make(&mut self, state: &str, content: &ContentBuilder) -> Result<BlockRef> {
        self.subject.state.clear();
        self.subject.state.push_str(state);
        let subject = self.subject.clone();
        let packed = self.packer.pack(content.bytes(), &self.pace)?;
        let sealed = block::seal(&subject, content, packed);
        self.pace.yield_if_due();
        let name = BlockName {
            checkpoint: self.subject.checkpoint,
            writer: self.writer,
            number: self.next,
        };
        self.next = self
            .next
            .checked_add(1)
            .ok_or_else(|| Error::new(ErrorCode::LimitReached, "a snapshot has too many blocks"))?;
        let file = name.file();
        let block = BlockRef {
            file: file.as_str().to_string(),
            places: sealed.places,
            entries: sealed.entries,
            bytes: sealed.file.len() as u32,
            unpacked: sealed.unpacked,
            xxh3: sealed.checksum,
        };
        self.ready.push((file, Bytes::from(sealed.file)));
        Ok(block)
    }
}

impl std::fmt::Debug for BlockFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockFiles")
            .field("folder", &self.folder)
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

/// A sorted run of one state's entries, split into blocks.
#[derive(Debug)]
pub(crate) struct Run {
    state: String,
    content: ContentBuilder,
    block_bytes: usize,
    blocks: Vec<BlockRef>,
}

impl Run {
    pub fn new(state: &str, space: Space, block_bytes: usize) -> Self {
        Run {
            state: state.to_string(),
            content: ContentBuilder::new(space),
            block_bytes,
            blocks: Vec::new(),
        }
    }

    /// Appends an entry. Returns the bytes of the blocks that this entry has completed.
    pub fn push(
        &mut self,
        files: &mut BlockFiles,
        slot: u32,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<u64> {
        let entry_bytes = key.len() + value.map_or(0, <[u8]>::len);
        let is_full = self.content.len() + entry_bytes > self.block_bytes;
        let mut made = 0;
        if is_full && self.content.entries() > 0 {
            made = self.end_block(files)?;
        }
        self.content.push(slot, key, value);
        Ok(made)
    }

    fn end_block(&mut self, files: &mut BlockFiles) -> Result<u64> {
        self.content.finish();
        let block = files.make(&self.state, &self.content)?;
        self.content.clear();
        let bytes = u64::from(block.bytes);
        self.blocks.push(block);
        Ok(bytes)
    }

    /// Completes the last block, and returns all blocks.
    pub fn finish(mut self, files: &mut BlockFiles) -> Result<Vec<BlockRef>> {
        if self.content.entries() > 0 {
            self.end_block(files)?;
        }
        Ok(self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_ordered_like_what_they_stand_for(
            a in (0u32..3, any::<bool>(), any::<u32>(), proptest::collection::vec(0u8..3, 0..12)),
            b in (0u32..3, any::<bool>(), any::<u32>(), proptest::collection::vec(0u8..3, 0..12)),
        ) {
            let space = |of_instances: bool| Space::ALL[usize::from(of_instances)];
            let places = [&a, &b].map(|it| place_of(it.0, space(it.1), it.2));
            let wanted = (a.0, space(a.1), a.2).cmp(&(b.0, space(b.1), b.2));
            prop_assert_eq!(places[0].cmp(&places[1]), wanted);
            let order = beginning_of(&a.3).cmp(&beginning_of(&b.3));
            prop_assert!(order.is_eq() || order == a.3.cmp(&b.3));
        }
    }
}
