//! Writes the cut of one instance as blocks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ardea_core::{Error, ErrorCode, PartitionId, Result};
use bytes::Bytes;

use crate::store::block::{
    self, BlockRef, ContentBuilder, KEY_MOST_BYTES, Subject, VALUE_MOST_BYTES,
};
use crate::store::core_pace::CorePace;
use crate::store::failure::too_large;
use crate::store::file_name::{BlockName, FileName, WriterToken};
use crate::store::packer::Packer;
use crate::store::partitions::Space;
use crate::store::{CutKind, CutOf, CutReceipt, Folder, SnapshotId};

/// Of how many entries the memory is asked for at a time: in order they lie all over the buffer, and what is asked for one by one is waited for one by one.
const FETCHED_TOGETHER: usize = 32;
/// No name of a job, a vertex or a state is longer.
const NAME_MOST_BYTES: usize = 4_096;

/// How blocks are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockConfig {
    /// About how many bytes of entries make a block, before they are packed. One entry that is larger has a block of its own.
    pub block_bytes: usize,
    /// How many bytes of entries are sorted at a time, at first: each time twice as many as before, and up to eight times as many in the
    /// end. So little is held for a small cut, and what is sorted of a large one is in few runs. The fewer runs, the fewer partitions
    /// each block has, the fewer blocks have to be read for some of them, and the fewer have to be merged.
    pub buffer_bytes: usize,
}

/// How much more is sorted at a time in the end.
const BUFFER_GROWTH: usize = 8;

/// Blocks of 1 MiB, sorted 16 MiB at a time.
impl Default for BlockConfig {
    fn default() -> Self {
        BlockConfig {
            block_bytes: 1 << 20,
            buffer_bytes: 16 << 20,
        }
    }
}

/// Writes the cut of one instance: takes its entries in any order, and gives a receipt when all are safe.
///
/// Calls block when a buffer is full, for as long as it takes to sort, pack and write it. A writer that is dropped before it has
/// finished leaves blocks that no snapshot refers to; a later [sweep](crate::store::SnapshotStore::sweep) removes them. Keep one a
/// thread: different cuts are written at the same time, from any number of processes.
#[derive(Debug)]
pub struct BlockWriter {
    of: CutOf,
    kind: CutKind,
    config: BlockConfig,
    /// How many bytes are sorted next.
    buffer_bytes: usize,
    began: Instant,
    files: BlockFiles,
    /// The states' names, in the order in which they came, and their blocks.
    states: Vec<(String, Vec<BlockRef>)>,
    bytes: Vec<u8>,
    entries: Vec<Buffered>,
}

/// An entry in the buffer. The key lies at `key_at`, the value behind it.
#[derive(Clone, Copy, Debug)]
struct Buffered {
    /// State, space and slot in one, and the beginning of the key: what decides about the order of nearly all, without looking elsewhere.
    order: (u64, u64),
    state: u32,
    space: Space,
    slot: u32,
    key_at: usize,
    key_bytes: u32,
    /// None for a removed key.
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

    /// Reads where it begins and ends, and so has its memory come.
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
    /// Begins the cut of an instance of `job`.
    ///
    /// # Errors
    /// `Internal` for a cut that is [`Unchanged`](CutKind::Unchanged) ([`CutReceipt::unchanged`] is for that), and for an instance that
    /// the vertex doesn't have; `LimitReached` if a name is too long.
    pub fn new(
        folder: Arc<dyn Folder>,
        job: &str,
        of: CutOf,
        kind: CutKind,
        config: BlockConfig,
    ) -> Result<Self> {
        if kind == CutKind::Unchanged || of.instance >= of.instances {
            let what = format!("there is no cut {kind:?} of {of:?}");
            return Err(Error::new(ErrorCode::Internal, what));
        }
        check_name("the name of a job", job)?;
        check_name("the name of a vertex", &of.vertex)?;
        let files = BlockFiles::new(folder, job, &of.vertex, of.snapshot);
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

    /// A key has this value. Of several entries of one key the last one counts.
    ///
    /// # Errors
    /// `LimitReached` for a key or a value that is too large, `Internal` for a partition that a full cut does not own, and what
    /// [`Folder::write`] returns. The cut is worth nothing then.
    pub fn set(
        &mut self,
        state: &str,
        partition: Option<PartitionId>,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.push(state, partition, key, Some(value))
    }

    /// A key has been removed.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn remove(
        &mut self,
        state: &str,
        partition: Option<PartitionId>,
        key: &[u8],
    ) -> Result<()> {
        self.push(state, partition, key, None)
    }

    /// Writes what is left, and says that all is safe.
    ///
    /// # Errors
    /// What [`Folder::write`] returns. The cut is worth nothing then.
    pub fn finish(mut self) -> Result<CutReceipt> {
        self.flush()?;
        let states: BTreeMap<_, _> = self.states.into_iter().collect();
        let took = self.began.elapsed();
        Ok(CutReceipt::new(self.of, self.kind, states, took))
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
        // Small entries take more memory here than their own bytes.
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
            CutKind::Full { partitions } if !partitions.contains(partition) => {
                let index = partition.index();
                let what = format!("an entry of partition {index} in a full cut of {partitions:?}");
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

    /// Sorts and writes what was gathered.
    fn flush(&mut self) -> Result<()> {
        let (bytes, pace) = (&self.bytes, &self.files.pace);
        // Stable: of equal keys the last stays the last.
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

/// In one number that is ordered like all three.
fn place_of(state: u32, space: Space, slot: u32) -> u64 {
    let space = u64::from(space == Space::Instances);
    (u64::from(state) << 33) | (space << 32) | u64::from(slot)
}

/// The first bytes of a key, as a number that is ordered like them. Of keys that begin alike the rest decides.
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

/// Writes blocks under names that nobody else uses.
pub(crate) struct BlockFiles {
    folder: Arc<dyn Folder>,
    subject: Subject,
    writer: WriterToken,
    next: u32,
    packer: Packer,
    pace: CorePace,
    /// Blocks that are not written yet.
    ready: Vec<(FileName, Bytes)>,
}

impl BlockFiles {
    /// For blocks of a vertex that are first needed by `snapshot`.
    pub fn new(folder: Arc<dyn Folder>, job: &str, vertex: &str, snapshot: SnapshotId) -> Self {
        BlockFiles {
            folder,
            subject: Subject {
                job: job.to_string(),
                snapshot,
                vertex: vertex.to_string(),
                state: String::new(),
            },
            writer: WriterToken::fresh(),
            next: 0,
            packer: Packer::default(),
            pace: CorePace::begin(),
            ready: Vec::new(),
        }
    }

    pub fn writer(&self) -> WriterToken {
        self.writer
    }

    pub fn pace(&self) -> &CorePace {
        &self.pace
    }

    /// Writes all blocks that are ready.
    pub fn flush(&mut self) -> Result<()> {
        self.folder.write_all(&self.ready)?;
        self.ready.clear();
        Ok(())
    }

    /// Makes a block, to be written by the next flush.
    fn make(&mut self, state: &str, content: &ContentBuilder) -> Result<BlockRef> {
        self.subject.state.clear();
        self.subject.state.push_str(state);
        let subject = self.subject.clone();
        let packed = self.packer.pack(content.bytes(), &self.pace)?;
        let sealed = block::seal(&subject, content, packed);
        self.pace.yield_if_due();
        let name = BlockName {
            snapshot: self.subject.snapshot,
            writer: self.writer,
            number: self.next,
        };
        self.next = self
            .next
            .checked_add(1)
            .ok_or_else(|| Error::new(ErrorCode::LimitReached, "a cut has too many blocks"))?;
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

/// Entries of one state in order, on their way into blocks.
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

    /// Appends an entry; tells how many bytes of blocks were made for it.
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

    /// Makes a block of what is left; all blocks of it.
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
