//! State larger than memory: the least recently used keys are spilled to disk until they are used
//! again.
//!
//! A key with its state is either in memory or on disk. A key that is not found in memory is looked
//! up on disk before it counts as new. Between two batches of records,
//! [`spill`](StateTable::spill) spills keys in bulk until memory suffices, so that a
//! frequently used key stays in memory. Due times of spilled keys are indexed on disk in order of
//! time.
//!
//! The contents of snapshots do not depend on where a key is. Keys in memory are written or set
//! aside as usual, also when they are spilled. Keys on disk are written from a view of the disk at
//! the time of the snapshot.

use std::borrow::Cow;

use ardea_core::{
    Error, ErrorCode, InstanceContext, InstanceMetrics, Key, PartitionId, Progress, RestoredEntry,
    Result, SnapshotWriter, StateChunk, StateEntry,
};

use crate::changes::slot_versions::SlotVersions;
use crate::codec::write_removed;
use crate::table::spilled_entry::{DueKind, DueTimes, EntryHeader};
use crate::table::spilled_keys::SpilledKeys;
use crate::table::{FREE, Slot, StateTable};

/// The minimum number of keys in memory, however little memory there is.
const MIN_KEYS: usize = if cfg!(any(test, feature = "testing")) {
    4
} else {
    64
};
/// The maximum number of keys spilled in advance.
const AHEAD: usize = 512;
/// The maximum number of keys spilled per call, which keeps the call short. A chunk of records adds
/// fewer keys.
const MAX_PER_CALL: usize = 4_096;
/// The bytes per key in the table, apart from the key and its slot.
const TABLE_BYTES: usize = 16;
/// The number of batches between two samples of a state's size, for small states. Larger states are
/// sampled less often, in proportion.
const BATCHES_PER_LOOK: u32 = 32;
const SMALL: usize = 256;

/// The estimated serialized size of a key and its state, and the clock hand for sampling and
/// eviction.
#[derive(Clone, Copy, Default, Debug)]
pub struct WrittenSize {
    /// The mean size in sixteenths of a byte.
    mean: u32,
    batches: u32,
    hand: u32,
}

impl WrittenSize {
    fn note(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(u32::MAX >> 5);
        self.mean = match self.mean {
            0 => bytes << 4,
            mean => mean - (mean >> 4) + bytes,
        };
    }

    fn mean(&self) -> usize {
        (self.mean >> 4) as usize
    }

    /// Advances the clock hand and returns the next of `slots` slots.
    fn next(&mut self, slots: usize) -> u32 {
        self.hand = match (self.hand as usize) < slots {
            true => self.hand + 1,
            false => 1,
        };
        self.hand - 1
    }
}

impl<K: Key, S> StateTable<K, S> {
    /// Attaches the states to an instance: tracks changes if snapshots are taken, and enables
    /// spilling if states can be serialized. The states must be empty, unless they were attached in
    /// a previous attempt of the job: the state on disk is then retained.
    ///
    /// # Errors
    /// No local store can be opened.
    pub fn attach(&mut self, context: &InstanceContext, is_kept: bool) -> Result<()> {
        if context.guarantee.keeps_state() {
            self.keep_track();
        }
        if let Some(store) = context.local.as_ref().filter(|_| is_kept)
            && self.cold.is_none()
        {
            self.cold = Some(Box::new(SpilledKeys::new(self.name, store.open()?)));
            // The generation also serves to find recently used keys.
            self.generation = self.generation.max(1);
        }
        Ok(())
    }

    /// Returns true if state may be spilled to disk.
    #[inline]
    pub fn has_disk(&self) -> bool {
        self.cold.is_some()
    }

    /// Works like [`slot_or_insert`](Self::slot_or_insert), but checks the disk before a key counts
    /// as new. `thaw` decodes a spilled entry.
    ///
    /// # Errors
    /// Those of reading and of `thaw`.
    #[inline]
    pub fn slot_or_load(
        &mut self,
        key: Cow<'_, K>,
        create: impl FnOnce() -> S,
        thaw: impl FnOnce(u32, &RestoredEntry<'_>) -> Result<S>,
    ) -> Result<u32> {
        match self.index.find(&key) {
            Some(slot) if self.slots[slot as usize].state.is_some() => Ok(slot),
            Some(slot) => {
                self.revive(slot, create());
                Ok(slot)
            }
            None if self.cold.is_none() => Ok(self.insert(key.into_owned(), create())),
            None => self.load_or_insert(key.into_owned(), create, thaw),
        }
    }

    #[cold]
    #[inline(never)]
    fn load_or_insert(
        &mut self,
        key: K,
        create: impl FnOnce() -> S,
        thaw: impl FnOnce(u32, &RestoredEntry<'_>) -> Result<S>,
    ) -> Result<u32> {
        let mut bytes = Vec::new();
        key.write_to(&mut bytes);
        if let Some(slot) = self.load(&bytes, |_| Ok(key.clone()), thaw)? {
            if self.get(slot).is_none() {
                self.revive(slot, create());
            }
            return Ok(slot);
        }
        Ok(self.insert(key, create()))
    }

    /// Loads a key from disk. Returns its slot, which holds a tombstone if the key was removed;
    /// `None` if the key is not on disk.
    fn load(
        &mut self,
        bytes: &[u8],
        key: impl FnOnce(&RestoredEntry<'_>) -> Result<K>,
        thaw: impl FnOnce(u32, &RestoredEntry<'_>) -> Result<S>,
    ) -> Result<Option<u32>> {
        let Some(cold) = &mut self.cold else {
            return Ok(None);
        };
        let Some((head, value)) = cold.take(bytes)? else {
            return Ok(None);
        };
        let entry = RestoredEntry {
            state: self.name,
            partition: Some(head.partition),
            key: bytes,
            value: &value,
        };
        let slot = self.settle(key(&entry)?, None, (head.changed, head.born));
        if head.is_removed {
            // The slot is retained, as the caller is about to use it.
            return Ok(Some(slot));
        }
        self.slots[slot as usize].state = Some(thaw(slot, &entry)?);
        self.live += 1;
        Ok(Some(slot))
    }

    /// Returns a lower bound of the due times of this kind on disk, if there are any.
    #[inline]
    pub fn first_due(&self, kind: DueKind) -> Option<i64> {
        self.cold.as_ref().and_then(|cold| cold.first_due(kind))
    }

    /// Loads up to `most` keys that are due by `until`, in order of time, and returns their slots.
    ///
    /// # Errors
    /// Those of reading, `key` and `thaw`.
    pub fn load_due(
        &mut self,
        (kind, until, most): (DueKind, i64, usize),
        key: impl Fn(&RestoredEntry<'_>) -> Result<K>,
        mut thaw: impl FnMut(u32, &RestoredEntry<'_>) -> Result<S>,
    ) -> Result<Vec<u32>> {
        let Some(cold) = &mut self.cold else {
            return Ok(Vec::new());
        };
        let due = cold.due(kind, until, most)?;
        let mut slots = Vec::with_capacity(due.len());
        for bytes in due {
            slots.extend(self.load(&bytes, &key, &mut thaw)?);
        }
        Ok(slots)
    }

    /// Spills keys to disk until memory suffices. Must be called between batches of records, as it
    /// frees slots.
    ///
    /// `freeze` appends the entry of the key at a slot, removes all other data of the slot, and
    /// returns its due times.
    ///
    /// # Errors
    /// Those of writing. No state is lost, but memory continues to grow.
    pub fn spill(
        &mut self,
        mut freeze: impl FnMut(&mut StateChunk, &K, u32, &S) -> Result<DueTimes>,
    ) -> Result<()> {
        let Some(cold) = &self.cold else {
            return Ok(());
        };
        let most = usize::try_from(cold.memory()).unwrap_or(usize::MAX) / self.bytes_per_key();
        let (most, used) = (most.max(MIN_KEYS), self.index.len());
        if used <= most {
            return Ok(());
        }
        let mut left = (used - most + (most / 16).min(AHEAD)).min(MAX_PER_CALL);
        // Recently used keys are skipped up to this limit. Beyond it, any key is spilled.
        let mut patience = 4 * left + (self.slots.len() / 4).min(MAX_PER_CALL);
        while left > 0 {
            let slot = self.written_size.next(self.slots.len());
            if slot == 0 && self.tracking.is_none() {
                self.generation = self.generation.wrapping_add(1).max(1);
            }
            let place = &self.slots[slot as usize];
            if place.written == FREE {
                continue;
            }
            if place.changed.saturating_add(1) >= self.generation && patience > 0 {
                patience -= 1;
                continue;
            }
            self.evict(slot, &mut freeze)?;
            left -= 1;
        }
        self.cold.as_mut().map_or(Ok(()), |cold| cold.flush())
    }

    /// Spills the key at a slot.
    fn evict(
        &mut self,
        slot: u32,
        freeze: &mut impl FnMut(&mut StateChunk, &K, u32, &S) -> Result<DueTimes>,
    ) -> Result<()> {
        let (place, key) = (&self.slots[slot as usize], self.index.key(slot));
        let mut chunk = StateChunk::default();
        let dues = match &place.state {
            Some(state) => freeze(&mut chunk, key, slot, state)?,
            None => {
                write_removed((self.name, &[]), &mut chunk, key)?;
                DueTimes::default()
            }
        };
        let Some((entry, partition)) = entry_in(&chunk) else {
            let what = "a state to be spilled to disk was not serialized";
            return Err(Error::new(ErrorCode::Internal, what));
        };
        let mut head = EntryHeader {
            changed: place.changed,
            born: 0,
            partition,
            is_removed: place.state.is_none(),
            is_listed: false,
            dues,
        };
        if let Some(lives) = &mut self.tracking {
            (head.born, head.is_listed) = (lives.born(slot), place.changed > lives.changes.base);
            put_aside(lives, slot, place, entry);
        }
        let value = entry.value.unwrap_or_default();
        self.written_size.note(entry.key.len() + value.len());
        if let Some(cold) = &mut self.cold
            && (!head.is_removed || head.is_listed)
        {
            cold.put(entry.key, &head, value);
        }
        self.live -= usize::from(self.slots[slot as usize].state.take().is_some());
        self.free(slot);
        Ok(())
    }

    /// Writes the next part of a snapshot's keys on disk, and ends the snapshot when they are
    /// complete.
    pub(crate) fn write_cold(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let written = match &mut self.cold {
            Some(cold) => cold.write_snapshot(writer),
            None => Ok(Progress::DONE),
        };
        if written.as_ref().map_or(true, |progress| progress.done) {
            if let Some(lives) = &mut self.tracking {
                lives.changes.end();
            }
            if let Some(cold) = &mut self.cold {
                cold.end_snapshot();
            }
        }
        written
    }

    /// Records the size of a restored entry. Without this, memory would fill up before the first
    /// sample.
    pub fn weigh(&mut self, entry: &RestoredEntry<'_>) {
        self.written_size.note(entry.key.len() + entry.value.len());
    }

    /// Returns the estimated memory per key with its state, in bytes.
    fn bytes_per_key(&self) -> usize {
        size_of::<Slot<S>>() + size_of::<K>() + TABLE_BYTES + self.written_size.mean()
    }

    /// Reports the approximate size of the state. Must be called once per batch of records. `write`
    /// appends the entry of the key at a slot; it is called only for occasional samples.
    #[inline]
    pub fn account(
        &mut self,
        metrics: &InstanceMetrics,
        write: impl FnOnce(&mut StateChunk, &K, u32, &S) -> Result<()>,
    ) {
        if self.written_size.batches == 0 {
            let looked_at = u32::try_from(1 + self.sample_size(write) / SMALL).unwrap_or(u32::MAX);
            self.written_size.batches = BATCHES_PER_LOOK.saturating_mul(looked_at);
        }
        self.written_size.batches -= 1;
        let here = (
            self.live as u64,
            (self.index.len() * self.bytes_per_key()) as u64,
        );
        let on_disk = self.cold.as_ref();
        metrics.record_state(
            here,
            on_disk.map_or((0, 0), |c| (c.keys() as u64, c.bytes())),
        );
    }

    /// Samples the size of one state. Returns the size in bytes, or zero if there is no state.
    #[cold]
    fn sample_size(
        &mut self,
        write: impl FnOnce(&mut StateChunk, &K, u32, &S) -> Result<()>,
    ) -> usize {
        if self.slots.is_empty() {
            return 0;
        }
        let slot = self.written_size.next(self.slots.len());
        let Some(state) = &self.slots[slot as usize].state else {
            return 0;
        };
        let mut chunk = StateChunk::default();
        // A state that cannot be serialized fails the next snapshot, with the reason.
        if write(&mut chunk, self.index.key(slot), slot, state).is_ok() {
            self.written_size.note(chunk.byte_len());
        }
        chunk.byte_len()
    }
}

/// Returns the written entry and its partition.
fn entry_in(chunk: &StateChunk) -> Option<(StateEntry<'_>, PartitionId)> {
    let entry = chunk.entries().next()?;
    Some((entry, entry.partition?))
}

/// Sets aside an entry that is about to leave memory, if the entry belongs to the snapshot in
/// progress and is not written yet.
fn put_aside<S>(lives: &mut SlotVersions, slot: u32, place: &Slot<S>, entry: StateEntry<'_>) {
    let Some(writing) = lives.changes.writing() else {
        return;
    };
    let is_due = writing.holds(slot, place.changed) && place.written != writing.generation;
    if is_due && (entry.value.is_some() || !writing.is_full()) {
        lives.changes.put_aside(|chunk| chunk.push(entry));
    }
}

#[cfg(test)]
#[path = "spill_tests.rs"]
mod tests;
