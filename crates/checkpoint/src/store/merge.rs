//! Merges layers: of each key the newest entry, place by place, in the order of keys.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::{Error, Result};

use crate::store::Folder;
use crate::store::block::{self, BlockRef, Content, Cursor, Expected};
use crate::store::layer::{Layer, Replaces};
use crate::store::parallel::in_parallel;
use crate::store::partitions::{Place, Space};
use crate::store::recent::RecentBlocks;

/// How many blocks of one place are read at a time, where somebody waits for a place.
const AT_A_TIME: usize = 4;

/// Entries of one state of a vertex, from several layers.
///
/// Holds in memory, unpacked, the blocks that have entries of the place at hand, and no others: with a sorted run that is one block a
/// layer, or two.
#[derive(Debug)]
pub(crate) struct Merge {
    folder: Arc<dyn Folder>,
    /// Blocks that others have read, if it is to look there.
    recent: Option<Arc<RecentBlocks>>,
    job: String,
    vertex: String,
    state: String,
    space: Space,
    /// What each layer replaces, the newest first.
    replaces: Vec<Replaces>,
    /// Blocks that were not reached yet; the one with the lowest first place is the last.
    pending: Vec<Planned>,
    /// Blocks that have the place at hand between their first and last one.
    open: Vec<Open>,
    /// The places that are still to be read.
    slots: Range<u32>,
    slot: u32,
    cursors: BinaryHeap<Reverse<Cursor>>,
    /// Stands at the entry that was returned last.
    found: Option<Cursor>,
    keep_removed: bool,
    failed: Option<Error>,
    read_bytes: u64,
}

/// A block, and how new it is.
#[derive(Clone, Debug)]
struct Planned {
    block: BlockRef,
    /// Of which layer; zero is the newest.
    layer: usize,
    /// The lower, the newer, among all blocks.
    age: u32,
}

#[derive(Debug)]
struct Open {
    planned: Planned,
    content: Option<Arc<Content>>,
}

/// An entry as a merge finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Merged<'a> {
    pub slot: u32,
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// What is to be merged.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub job: &'a str,
    pub vertex: &'a str,
    pub state: &'a str,
    pub space: Space,
    pub slots: Range<u32>,
    /// Whether keys are told that were removed: somebody has to know if there may be older layers.
    pub keep_removed: bool,
}

impl Merge {
    /// Of these layers, the oldest first. Reads nothing yet.
    pub fn new(folder: Arc<dyn Folder>, layers: &[Layer], wanted: Wanted) -> Self {
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

    /// Looks there before it reads a block.
    pub fn beside(mut self, recent: Option<Arc<RecentBlocks>>) -> Self {
        self.recent = recent;
        self
    }

    /// How many bytes of blocks were read so far, or found to have been read.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// The next entry, or none at the end. After an error only that error.
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

    /// Leaves out what other blocks say of the same key.
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

    /// Goes to the next place that may have entries; false if there is none.
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

    /// Reads what has to be read of the open blocks that count. A place has one of each layer, and whoever reads a few partitions at a time waits for
    /// the first: so these are read several at a time.
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
    /// Whether it is of this layer or a newer one: what is older has been replaced.
    fn counts(&self, oldest: Option<usize>) -> bool {
        oldest.is_none_or(|oldest| self.planned.layer <= oldest)
    }
}

/// An entry of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Where it belongs.
    pub place: Place,
    /// The key's bytes.
    pub key: &'a [u8],
    /// The value's bytes.
    pub value: &'a [u8],
}

/// The entries of one state of a vertex, by ascending place and key.
///
/// Blocks are read when they are needed; in memory are those that have entries of the place at hand. Costs, per entry, one or two
/// comparisons of keys for each layer that has entries of the place.
#[derive(Debug)]
pub struct Entries {
    merge: Merge,
}

impl Entries {
    pub(crate) fn new(merge: Merge) -> Self {
        Entries { merge }
    }

    /// The next one, or none at the end.
    ///
    /// # Errors
    /// `SnapshotDamaged`, which names the block that is damaged or missing, `VersionMismatch`, or what [`Folder::read`] returns. No
    /// entry comes after an error, but the same error again.
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>> {
        let space = self.merge.space;
        let Some(Merged { slot, key, value }) = self.merge.next()? else {
            return Ok(None);
        };
        // Slots come from places, and a merge that keeps no removed keys gives values only.
        let entry = space
            .place(slot)
            .zip(value)
            .map(|(place, value)| Entry { place, key, value });
        entry.map(Some).ok_or_else(|| {
            let what = "an entry of a snapshot has no place";
            Error::new(ardea_core::ErrorCode::Internal, what)
        })
    }
}
