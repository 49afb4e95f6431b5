//! Merge of layers: reads the newest entry of each key, by ascending slot and key.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::{Error, Result};

use crate::store::ObjectStore;
use crate::store::block::{self, BlockRef, Content, Cursor, Expected};
use crate::store::block_cache::BlockCache;
use crate::store::layer::{Layer, Replaces};
use crate::store::parallel::in_parallel;
use crate::store::partitions::{KeySlot, Space};

/// The maximum number of blocks of one slot that are read concurrently, if a cache is used.
const AT_A_TIME: usize = 4;

/// A merge of the entries of one state of a vertex from several layers.
///
/// Only the blocks that cover the current slot are in memory, uncompressed: one or two per sorted
/// run of each layer.
#[derive(Debug)]
pub(crate) struct Merge {
    folder: Arc<dyn ObjectStore>,
    /// The cache of blocks, if one is used.
    recent: Option<Arc<BlockCache>>,
    job: String,
    vertex: String,
    state: String,
    space: Space,
    /// For each layer, newest first, the slots in which it replaces older entries.
    replaces: Vec<Replaces>,
    /// The blocks not reached yet, by descending first slot: the next one is last.
    pending: Vec<Planned>,
    /// The blocks whose range of slots includes the current slot.
    open: Vec<Open>,
    /// The slots still to be read.
    slots: Range<u32>,
    slot: u32,
    cursors: BinaryHeap<Reverse<Cursor>>,
    /// The cursor at the entry that was returned last.
    found: Option<Cursor>,
    keep_removed: bool,
    failed: Option<Error>,
    read_bytes: u64,
}

/// A block to be read, with its age.
#[derive(Clone, Debug)]
struct Planned {
    block: BlockRef,
    /// The index of the block's layer; zero is the newest layer.
    layer: usize,
    /// The rank of the block among all blocks of the merge; zero is the newest.
    age: u32,
}

#[derive(Debug)]
struct Open {
    planned: Planned,
    content: Option<Arc<Content>>,
}

/// An entry as returned by a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Merged<'a> {
    pub slot: u32,
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// The selection of entries to be merged.
#[derive(Clone, Debug)]
pub(crate) struct MergeFilter<'a> {
    pub job: &'a str,
    pub vertex: &'a str,
    pub state: &'a str,
    pub space: Space,
    pub slots: Range<u32>,
    /// True to return tombstones too. They are needed if layers older than the merged ones may
    /// exist.
    pub keep_removed: bool,
}

impl Merge {
    /// Creates a merge of these layers, given oldest first. Blocks are read later, on demand.
    pub fn new(folder: Arc<dyn ObjectStore>, layers: &[Layer], wanted: MergeFilter) -> Self {
        let mut pending = Vec::new();
        let mut age = 0;
        for (newness, layer) in layers.iter().rev().enumerate() {
            let blocks = layer.states.get(wanted.state).into_iter().flatten();
            for block in blocks.rev() {
                let is_wanted = block.places.of == wanted.space
                    && block.places.first < wanted.slots.end
                    && block.places.last >= wanted.slots.start;
                if is_wanted {
                    pending.push(Planned {
                        block: block.clone(),
                        layer: newness,
                        age,
                    });
                }
                age += 1;
            }
        }
        pending.sort_by_key(|planned| Reverse(planned.block.places.first));
        Merge {
            folder,
            recent: None,
            job: wanted.job.to_string(),
            vertex: wanted.vertex.to_string(),
            state: wanted.state.to_string(),
            space: wanted.space,
            replaces: layers
                .iter()
                .rev()
                .map(|layer| layer.replaces.clone())
                .collect(),
            pending,
            open: Vec::new(),
            slot: wanted.slots.start,
            slots: wanted.slots,
            cursors: BinaryHeap::new(),
            found: None,
            keep_removed: wanted.keep_removed,
            failed: None,
            read_bytes: 0,
        }
    }

    /// Sets the cache of blocks to use, if any.
    pub fn beside(mut self, recent: Option<Arc<BlockCache>>) -> Self {
        self.recent = recent;
        self
    }

    /// Returns the bytes of blocks read so far, including those from the cache.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Returns the next entry, or `None` at the end. After an error every call returns the same
    /// error.
    pub fn next(&mut self) -> Result<Option<Merged<'_>>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.find() {
            Ok(()) => Ok(self.found.as_ref().map(|found| Merged {
                slot: self.slot,
                key: found.key(),
                value: found.value(),
            })),
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    fn find(&mut self) -> Result<()> {
        loop {
            if let Some(mut last) = self.found.take()
                && last.next()?
            {
                self.cursors.push(Reverse(last));
            }
            let Some(Reverse(newest)) = self.cursors.pop() else {
                if !self.open_slot()? {
                    return Ok(());
                }
                continue;
            };
            self.skip_older(&newest)?;
            let counts = newest.value().is_some() || self.keep_removed;
            self.found = Some(newest);
            if counts {
                return Ok(());
            }
        }
    }

    /// Skips the older entries with the same key as `found`.
    fn skip_older(&mut self, found: &Cursor) -> Result<()> {
        while let Some(mut older) = self.cursors.peek_mut() {
            if older.0.key() != found.key() {
                break;
            }
            if !older.0.next()? {
                PeekMut::pop(older);
            }
        }
        Ok(())
    }

    /// Advances to the next slot that may have entries. Returns false if there is none.
    fn open_slot(&mut self) -> Result<bool> {
        self.open
            .retain(|open| open.planned.block.places.last >= self.slots.start);
        if self.open.is_empty() {
            let Some(next) = self.pending.last() else {
                return Ok(false);
            };
            self.slots.start = self.slots.start.max(next.block.places.first);
        }
        if self.slots.is_empty() {
            return Ok(false);
        }
        let slot = self.slots.start;
        self.slots.start += 1;
        self.slot = slot;
        while let Some(next) = self.pending.pop_if(|next| next.block.places.first <= slot) {
            if next.block.places.last >= slot {
                self.open.push(Open {
                    planned: next,
                    content: None,
                });
            }
        }
        let replaced_by = |replaces: &Replaces| replaces.has(self.space, slot);
        let oldest = self.replaces.iter().position(replaced_by);
        let counts = |open: &&Open| open.counts(oldest);
        self.read_open(oldest)?;
        for open in self.open.iter().filter(counts) {
            if let Some(content) = &open.content
                && let Some(cursor) = content.cursor(slot, open.planned.age)?
            {
                self.cursors.push(Reverse(cursor));
            }
        }
        Ok(true)
    }

    /// Reads the open blocks that count and are not read yet. If a cache is used, the reader waits
    /// for a few partitions only, so the blocks are read concurrently.
    fn read_open(&mut self, oldest: Option<usize>) -> Result<()> {
        let expected = Expected {
            job: &self.job,
            vertex: &self.vertex,
            state: &self.state,
        };
        let read = |block: &BlockRef| block::read(&*self.folder, block, expected);
        let unread = self.open.iter_mut();
        let unread = unread.filter(|open| open.content.is_none() && open.counts(oldest));
        let Some(recent) = &self.recent else {
            for open in unread {
                let content = read(&open.planned.block)?;
                self.read_bytes += content.len() as u64;
                open.content = Some(Arc::new(content));
            }
            return Ok(());
        };
        let unread: Vec<&mut Open> = unread.collect();
        let (threads, bytes) = (unread.len().min(AT_A_TIME), AtomicU64::new(0));
        let unread = Mutex::new(unread);
        let next = || unread.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let outcome = in_parallel(threads, &|| {
            while let Some(open) = next() {
                let block = &open.planned.block;
                let content = recent.get(block, || read(block))?;
                bytes.fetch_add(content.len() as u64, Ordering::Relaxed);
                open.content = Some(content);
            }
            Ok(())
        });
        self.read_bytes += bytes.into_inner();
        outcome
    }
}

impl Open {
    /// Returns true if no newer layer replaces the block's entries of the current slot. `oldest` is
    /// the index of the newest layer that replaces the slot, if any.
    fn counts(&self, oldest: Option<usize>) -> bool {
        oldest.is_none_or(|oldest| self.planned.layer <= oldest)
    }
}

/// An entry of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The slot that the entry belongs to.
    pub place: KeySlot,
    /// The key's bytes.
    pub key: &'a [u8],
    /// The value's bytes.
    pub value: &'a [u8],
}

/// The entries of one state of a vertex, by ascending slot and key.
///
/// Blocks are read on demand; only the blocks that cover the current slot are in memory. Costs one
/// or two key comparisons per entry for each layer with entries of the slot.
#[derive(Debug)]
pub struct Entries {
    merge: Merge,
}

impl Entries {
    pub(crate) fn new(merge: Merge) -> Self {
        Entries { merge }
    }

    /// Returns the next entry, or `None` at the end.
    ///
    /// # Errors
    /// `CheckpointDamaged` with the damaged or missing block, `VersionMismatch`, or those of
    /// [`ObjectStore::read`]. After an error every call returns the same error.
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>> {
        let space = self.merge.space;
        let Some(Merged { slot, key, value }) = self.merge.next()? else {
            return Ok(None);
        };
        // Slots are always valid, and a merge without tombstones returns values only.
        let entry = space
            .place(slot)
            .zip(value)
            .map(|(place, value)| Entry { place, key, value });
        entry.map(Some).ok_or_else(|| {
            let what = "an entry of a checkpoint has no place";
            Error::new(ardea_core::ErrorCode::Internal, what)
        })
    }
}
