//! A table of states, one per key, that tracks changes for snapshots.
//!
//! * `spill`: states that are moved to disk if memory is short; `spilled_keys` and `spilled_entry`:
//!   their layout there;
//! * `restoring_partitions`: a table that is used before all of its partitions are restored.

pub(crate) mod restoring_partitions;
mod spill;
pub(crate) mod spilled_entry;
mod spilled_keys;

use std::borrow::Cow;
use std::fmt;

use ardea_core::{
    Epoch, Error, ErrorCode, Key, Progress, Result, SnapshotRequest, SnapshotWriter, StateChunk,
};

use crate::changes::slot_versions::SlotVersions;
use crate::codec::{duplicate_entry, write_removed};
use crate::key_table::KeyIndex;
use crate::{PLACES_PER_CALL, STATE};
use restoring_partitions::RestoringPartitions;
use spill::WrittenSize;
use spilled_keys::SpilledKeys;

/// One state per key at the key's slot, which is stable until the key is removed.
///
/// Nothing depends on the order of a hash table, so that equal inputs give equal outputs.
///
/// If snapshots are taken, a state must be [touched](Self::touch) before each change. That costs a
/// comparison, and a list entry for the first change of a key in each epoch. If the snapshot in
/// progress still has to write the state, it is written at that point. A removed key keeps its slot
/// until no valid snapshot contains it; a key that was in no snapshot is freed at once.
///
/// If state may be spilled, a key is in memory or on disk, never both. Only keys
/// in memory have slots.
pub struct StateTable<K, S> {
    /// The name of the state in snapshots.
    pub(crate) name: &'static str,
    pub(crate) index: KeyIndex<K>,
    pub(crate) slots: Vec<Slot<S>>,
    /// The number of keys in memory that have a state.
    pub(crate) live: usize,
    /// The current generation, incremented at each snapshot. Zero if there are neither snapshots
    /// nor spilling.
    pub(crate) generation: u32,
    pub(crate) tracking: Option<Box<SlotVersions>>,
    /// The keys on disk.
    pub(crate) cold: Option<Box<SpilledKeys>>,
    /// The keys that are not restored yet.
    pub(crate) away: Option<Box<RestoringPartitions>>,
    /// The estimated serialized size of a key and its state.
    pub(crate) written_size: WrittenSize,
}

/// The written generation of a slot that is free.
const FREE: u32 = u32::MAX;

/// The slot of a key.
pub(crate) struct Slot<S> {
    /// The state. `None` if the slot is free or the key was removed.
    pub(crate) state: Option<S>,
    /// The generation of the last change.
    pub(crate) changed: u32,
    /// The generation of the last snapshot that the state was written to, or [`FREE`].
    pub(crate) written: u32,
}

impl<K, S> Default for StateTable<K, S> {
    fn default() -> Self {
        StateTable {
            name: STATE,
            index: KeyIndex::default(),
            slots: Vec::new(),
            live: 0,
            generation: 0,
            tracking: None,
            cold: None,
            away: None,
            written_size: WrittenSize::default(),
        }
    }
}

impl<K: Key, S> StateTable<K, S> {
    /// Creates an empty table whose state has this name in snapshots.
    pub fn named(name: &'static str) -> Self {
        StateTable {
            name,
            ..StateTable::default()
        }
    }

    /// Omits the index from keys to slots: each key counts as new. Called before the first key.
    pub(crate) fn do_not_index(&mut self) {
        self.index = KeyIndex::without_search();
    }

    /// Starts to track changes for snapshots. The states must be empty, unless changes are tracked
    /// already.
    pub fn keep_track(&mut self) {
        if self.tracking.is_none() {
            self.generation = 1;
            self.tracking = Some(Box::default());
        }
    }

    /// Reserves room for about `keys` more keys, if memory allows.
    pub(crate) fn reserve(&mut self, keys: usize) {
        self.index.reserve(keys);
        // On failure the table grows on demand.
        let _ = self.slots.try_reserve(keys);
        if let Some(lives) = &mut self.tracking {
            lives.reserve(keys);
        }
    }

    /// Returns the slot of `key`. A new key has the state `create()`.
    #[inline]
    pub fn slot_or_insert(&mut self, key: Cow<'_, K>, create: impl FnOnce() -> S) -> u32 {
        match self.index.find(&key) {
            Some(slot) if self.slots[slot as usize].state.is_some() => slot,
            Some(slot) => {
                self.revive(slot, create());
                slot
            }
            None => self.insert(key.into_owned(), create()),
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn insert(&mut self, key: K, state: S) -> u32 {
        self.settle(key, Some(state), (self.generation, self.generation))
    }

    /// Assigns a slot to a key that was last changed in generation `changed` and created in `born`.
    pub(crate) fn settle(&mut self, key: K, state: Option<S>, (changed, born): (u32, u32)) -> u32 {
        let slot = self.index.insert(key);
        self.live += usize::from(state.is_some());
        let mut new = Slot {
            state,
            changed,
            written: 0,
        };
        if let Some(lives) = &mut self.tracking {
            lives.begin(slot, born);
            if changed > lives.changes.base {
                lives.note(slot, self.generation);
            }
            // The key belongs to no earlier snapshot, or is written to that snapshot from disk.
            new.written = lives.changes.writing().map_or(0, |w| w.generation);
        }
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = new,
            None => self.slots.push(new),
        }
        slot
    }

    /// Adds a key again that still has a tombstone.
    #[cold]
    pub(crate) fn revive(&mut self, slot: u32, state: S) {
        self.touch(slot, |_, _, _| Ok(()));
        self.slots[slot as usize].state = Some(state);
        self.live += 1;
    }

    /// Returns the slot of `key`, if it has a state.
    #[inline]
    pub fn find(&self, key: &K) -> Option<u32> {
        let slot = self.index.find(key)?;
        self.get(slot).map(|_| slot)
    }

    /// Returns true if a snapshot is being written.
    pub fn is_writing(&self) -> bool {
        let lives = self.tracking.as_ref();
        lives.is_some_and(|lives| lives.changes.writing().is_some())
    }

    /// Returns the key and state of a slot, if the slot is in use. The caller must
    /// [touch](Self::touch) the slot before a change.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<(&K, &mut S)> {
        let state = self.slots.get_mut(slot as usize)?.state.as_mut()?;
        Some((self.index.key(slot), state))
    }

    /// Returns the key of a slot that is in use.
    pub(crate) fn key(&self, slot: u32) -> &K {
        self.index.key(slot)
    }

    /// Returns the state of a slot, if the slot is in use.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<&S> {
        self.slots.get(slot as usize)?.state.as_ref()
    }

    /// Prepares the state of a slot for a change. `write` appends the present entry of a key.
    #[inline]
    pub fn touch(&mut self, slot: u32, write: impl FnOnce(&mut StateChunk, &K, &S) -> Result<()>) {
        let is_first = |place: &Slot<S>| place.changed != self.generation;
        if self.slots.get(slot as usize).is_some_and(is_first) {
            self.touch_first(slot, write);
        }
    }

    #[cold]
    #[inline(never)]
    fn touch_first(
        &mut self,
        slot: u32,
        write: impl FnOnce(&mut StateChunk, &K, &S) -> Result<()>,
    ) {
        let place = &mut self.slots[slot as usize];
        let before = std::mem::replace(&mut place.changed, self.generation);
        let Some(lives) = &mut self.tracking else {
            return;
        };
        lives.note(slot, self.generation);
        let changes = &mut lives.changes;
        let Some(writing) = changes.writing() else {
            return;
        };
        if !writing.holds(slot, before) || place.written == writing.generation {
            return;
        }
        place.written = writing.generation;
        let (key, is_full) = (self.index.key(slot), writing.is_full());
        changes.put_aside(|chunk| match &place.state {
            Some(state) => write(chunk, key, state),
            None if is_full => Ok(()),
            None => write_removed((self.name, &[]), chunk, key),
        });
    }

    /// Removes the key of a slot, which must have been [touched](Self::touch), and returns its
    /// state.
    pub fn remove(&mut self, slot: u32) -> Option<S> {
        let state = self.slots.get_mut(slot as usize)?.state.take()?;
        self.live -= 1;
        let lives = self.tracking.as_mut();
        if !lives.is_some_and(|lives| lives.remove(slot, self.generation)) {
            self.free(slot);
        }
        Some(state)
    }

    /// Frees a slot without a state.
    pub(crate) fn free(&mut self, slot: u32) {
        self.index.remove(slot);
        self.slots[slot as usize].written = FREE;
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.live + self.cold.as_ref().map_or(0, |cold| cold.keys())
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the highest slot used so far plus one.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Captures the current contents for a snapshot.
    ///
    /// # Errors
    /// Those of writing to disk, if state is spilled.
    pub fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        if self.away.is_some() {
            let what = "a snapshot was requested before all keys are restored";
            return Err(Error::new(ErrorCode::Internal, what));
        }
        let Some(lives) = &mut self.tracking else {
            return Ok(());
        };
        let changes = &mut lives.changes;
        changes.freeze(snapshot.epoch, self.generation);
        self.generation += 1;
        let base = changes.base;
        changes.begin(snapshot, self.generation - 1, self.slots.len());
        let Some(cold) = &mut self.cold else {
            return Ok(());
        };
        let taken = cold.take_snapshot(snapshot.is_full(), base, self.generation - 1);
        if taken.is_err() {
            changes.end();
        }
        taken
    }

    /// Writes the next part of the current snapshot. `write` appends the entry of the key at a
    /// slot.
    pub fn write_snapshot(
        &mut self,
        writer: &mut SnapshotWriter<'_>,
        mut write: impl FnMut(&mut StateChunk, &K, u32, &S) -> Result<()>,
    ) -> Result<Progress> {
        let Some(lives) = &mut self.tracking else {
            return Ok(Progress::DONE);
        };
        let changes = &mut lives.changes;
        if let Err(error) = changes.write_aside(writer) {
            changes.end();
            return Err(error);
        }
        for _ in 0..PLACES_PER_CALL {
            if !writer.has_room() {
                return Ok(Progress::MADE);
            }
            let Some(slot) = changes.next() else {
                return self.write_cold(writer);
            };
            let Some(writing) = changes.writing() else {
                return Ok(Progress::DONE);
            };
            let place = &mut self.slots[slot as usize];
            if place.written == FREE || !writing.takes(place.changed) {
                continue;
            }
            if std::mem::replace(&mut place.written, writing.generation) == writing.generation {
                continue;
            }
            let (key, is_full) = (self.index.key(slot), writing.is_full());
            let written = match &place.state {
                Some(state) => write(writer.chunk(), key, slot, state),
                None if is_full => Ok(()),
                None => write_removed((self.name, &[]), writer.chunk(), key),
            };
            if let Err(error) = written {
                changes.end();
                return Err(error);
            }
        }
        Ok(Progress::MADE)
    }

    /// Handles the commit of an epoch: the changes of its snapshot are no longer listed, and keys
    /// removed before it are freed.
    ///
    /// # Errors
    /// Those of writing to disk, if state is spilled.
    pub fn commit(&mut self, epoch: Epoch) -> Result<Progress> {
        let Some(lives) = &mut self.tracking else {
            return Ok(Progress::DONE);
        };
        lives.changes.commit(epoch);
        let base = lives.changes.base;
        let is_writing = lives.changes.writing().is_some();
        let progress = self.free_tombstones();
        match &mut self.cold {
            Some(cold) if progress.done && !is_writing => cold.forget_changes(base),
            _ => Ok(progress),
        }
    }

    /// Frees the slots of keys that need no tombstone any more, after a commit or abort.
    fn free_tombstones(&mut self) -> Progress {
        let Some(lives) = &mut self.tracking else {
            return Progress::DONE;
        };
        let slots = &self.slots;
        let (free, progress) = lives.free_tombstones(|slot| {
            let place = slots.get(slot as usize)?;
            (place.state.is_none() && place.written != FREE).then_some(place.changed)
        });
        free.into_iter().for_each(|slot| self.free(slot));
        progress
    }

    /// Handles the abort of an epoch, whose snapshot is void.
    pub fn abort(&mut self, epoch: Epoch) -> Progress {
        if let Some(lives) = &mut self.tracking {
            lives.changes.abort(epoch);
        }
        if !self.is_writing()
            && let Some(cold) = &mut self.cold
        {
            cold.end_snapshot();
        }
        self.free_tombstones()
    }

    /// Restores a key with its state, and returns its slot.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`](ardea_core::ErrorCode::BadRecord) if the key is already present.
    pub fn restore(&mut self, key: K, state: S) -> Result<u32> {
        if self.index.find(&key).is_some() {
            return Err(duplicate_entry());
        }
        Ok(self.settle(key, Some(state), (0, 0)))
    }
}

impl<K: Key, S> fmt::Debug for StateTable<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateTable({} keys)", self.len())
    }
}

#[cfg(test)]
mod tests;
