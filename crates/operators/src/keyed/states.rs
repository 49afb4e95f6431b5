//! Something for each key, at a place that timers can name.

use std::borrow::Cow;
use std::fmt;

use ardea_core::{Cut, CutWriter, Epoch, Error, ErrorCode, Key, Progress, Result, StateChunk};

use crate::keyed::away::Away;
use crate::keyed::cold::Cold;
use crate::keyed::lives::Lives;
use crate::keyed::relief::WrittenSize;
use crate::keyed::{twice, write_removed};
use crate::keyed_table::KeyIndex;

/// The name of the one state that keyed operators have.
pub(crate) const STATE: &str = "keys";

/// How many places a call looks at, at the most, for what belongs to a cut.
pub(crate) const PLACES_PER_CALL: usize = 1_024;

/// In the place of the generation whose cut a slot was written to last: the slot is free.
pub(super) const FREE: u32 = u32::MAX;

/// One state a key, at the key's slot, which stays until the key is removed; then both state and slot are free.
///
/// Nothing depends on the order of a hash table, so that equal inputs give equal outputs.
///
/// Where cuts are taken, whoever changes a state [touches](Self::touch) it before, which costs a comparison, and for the first change of
/// a key in each epoch an entry in a list. If the state belongs to a cut that is being written, and has not been written, it is
/// written then. A key that is removed keeps its slot until no cut that counts knows of it: at once if none ever did.
///
/// Where state may lie on [disk](super::relief), a key is here or there, never in both places; only those here have slots.
pub(crate) struct KeyedStates<K, S> {
    pub(super) index: KeyIndex<K>,
    pub(super) slots: Vec<Slot<S>>,
    /// How many keys have a state here.
    pub(super) live: usize,
    /// Between two cuts one number; zero where neither cuts are taken nor state lies on disk.
    pub(super) generation: u32,
    pub(super) tracking: Option<Box<Lives>>,
    /// The keys that are on disk.
    pub(super) cold: Option<Box<Cold>>,
    /// The keys that have not come back yet.
    pub(super) away: Option<Box<Away>>,
    /// About how many bytes a key and its state take when they are written.
    pub(super) written_size: WrittenSize,
}

/// The place of a key.
pub(super) struct Slot<S> {
    /// None where the slot is free, or the key has been removed.
    pub(super) state: Option<S>,
    /// The generation in which it was changed last.
    pub(super) changed: u32,
    /// The generation whose cut it was written to last, or that it is free.
    pub(super) written: u32,
}

impl<K, S> Default for KeyedStates<K, S> {
    fn default() -> Self {
        KeyedStates {
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

impl<K: Key, S> KeyedStates<K, S> {
    /// Keeps track of changes from now on, as cuts will be taken. Nothing may be in it yet, unless it does so already.
    pub(crate) fn keep_track(&mut self) {
        if self.tracking.is_none() {
            self.generation = 1;
            self.tracking = Some(Box::default());
        }
    }

    /// Makes room for about so many keys more, if there is memory.
    pub(super) fn reserve(&mut self, keys: usize) {
        self.index.reserve(keys);
        // Without it, it grows as ever.
        let _ = self.slots.try_reserve(keys);
        if let Some(lives) = &mut self.tracking {
            lives.reserve(keys);
        }
    }

    /// The slot of `key`, with the state that `create` makes if the key is new.
    #[inline]
    pub(crate) fn slot_or_insert(&mut self, key: Cow<'_, K>, create: impl FnOnce() -> S) -> u32 {
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
    pub(super) fn insert(&mut self, key: K, state: S) -> u32 {
        self.settle(key, Some(state), (self.generation, self.generation))
    }

    /// Gives a slot to a key that was changed last, and came, in these generations.
    pub(super) fn settle(&mut self, key: K, state: Option<S>, (changed, born): (u32, u32)) -> u32 {
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
            // It is no part of a cut that was taken before, or written there from disk.
            new.written = lives.changes.writing().map_or(0, |w| w.generation);
        }
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = new,
            None => self.slots.push(new),
        }
        slot
    }

    /// A key comes again whose removal has to be told of.
    #[cold]
    pub(super) fn revive(&mut self, slot: u32, state: S) {
        self.touch(slot, |_, _, _| Ok(()));
        self.slots[slot as usize].state = Some(state);
        self.live += 1;
    }

    /// The slot of `key`, if it has a state.
    #[inline]
    pub(crate) fn find(&self, key: &K) -> Option<u32> {
        let slot = self.index.find(key)?;
        self.get(slot).map(|_| slot)
    }

    /// Whether a cut is being written.
    pub(crate) fn is_writing(&self) -> bool {
        let lives = self.tracking.as_ref();
        lives.is_some_and(|lives| lives.changes.writing().is_some())
    }

    /// The key and state of a slot, if it is in use. Who changes the state has [touched](Self::touch) it.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<(&K, &mut S)> {
        let state = self.slots.get_mut(slot as usize)?.state.as_mut()?;
        Some((self.index.key(slot), state))
    }

    /// The state of a slot, if it is in use.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&S> {
        self.slots.get(slot as usize)?.state.as_ref()
    }

    /// The state of a slot is about to change. `write` appends the entry of a key as it is now.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        slot: u32,
        write: impl FnOnce(&mut StateChunk, &K, &S) -> Result<()>,
    ) {
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
            None => write_removed((STATE, &[]), chunk, key),
        });
    }

    /// Forgets the key of a slot, which has been [touched](Self::touch), and returns its state.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<S> {
        let state = self.slots.get_mut(slot as usize)?.state.take()?;
        self.live -= 1;
        let lives = self.tracking.as_mut();
        if !lives.is_some_and(|lives| lives.bury(slot, self.generation)) {
            self.free(slot);
        }
        Some(state)
    }

    /// Frees a slot without a state.
    pub(super) fn free(&mut self, slot: u32) {
        self.index.remove(slot);
        self.slots[slot as usize].written = FREE;
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.live + self.cold.as_ref().map_or(0, |cold| cold.keys())
    }

    /// One more than the highest slot in use so far.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// What is there now belongs to this cut.
    ///
    /// # Errors
    /// Where state lies on disk, what writing there returns.
    pub(crate) fn take_cut(&mut self, cut: Cut) -> Result<()> {
        if self.away.is_some() {
            let what = "a cut is to be taken of keys that have not come back yet";
            return Err(Error::new(ErrorCode::Internal, what));
        }
        let Some(lives) = &mut self.tracking else {
            return Ok(());
        };
        let changes = &mut lives.changes;
        changes.freeze(cut.epoch, self.generation);
        self.generation += 1;
        let base = changes.base;
        changes.begin(cut, self.generation - 1, self.slots.len());
        let Some(cold) = &mut self.cold else {
            return Ok(());
        };
        let taken = cold.take_cut(cut.is_full(), base, self.generation - 1);
        if taken.is_err() {
            changes.end();
        }
        taken
    }

    /// Writes on at the cut that was taken last; `write` appends the entry of the key at a slot.
    pub(crate) fn write_cut(
        &mut self,
        writer: &mut CutWriter<'_>,
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
                None => write_removed((STATE, &[]), writer.chunk(), key),
            };
            if let Err(error) = written {
                changes.end();
                return Err(error);
            }
        }
        Ok(Progress::MADE)
    }

    /// An epoch is committed: what changed up to its cut needs not be written any more, and what was removed by then is free.
    ///
    /// # Errors
    /// Where state lies on disk, what writing there returns.
    pub(crate) fn commit(&mut self, epoch: Epoch) -> Result<Progress> {
        let Some(lives) = &mut self.tracking else {
            return Ok(Progress::DONE);
        };
        lives.changes.commit(epoch);
        let base = lives.changes.base;
        let is_writing = lives.changes.writing().is_some();
        let progress = self.free_graves();
        match &mut self.cold {
            Some(cold) if progress.done && !is_writing => cold.forget_changes(base),
            _ => Ok(progress),
        }
    }

    /// After a decision on an epoch: the slots of keys are free that nobody has to be told of any more.
    fn free_graves(&mut self) -> Progress {
        let Some(lives) = &mut self.tracking else {
            return Progress::DONE;
        };
        let slots = &self.slots;
        let (free, progress) = lives.free_graves(|slot| {
            let place = slots.get(slot as usize)?;
            (place.state.is_none() && place.written != FREE).then_some(place.changed)
        });
        free.into_iter().for_each(|slot| self.free(slot));
        progress
    }

    /// An epoch is given up: its cut is void.
    pub(crate) fn give_up(&mut self, epoch: Epoch) -> Progress {
        if let Some(lives) = &mut self.tracking {
            lives.changes.give_up(epoch);
        }
        if !self.is_writing()
            && let Some(cold) = &mut self.cold
        {
            cold.end_cut();
        }
        self.free_graves()
    }

    /// A key comes back with its state; its slot.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`](ardea_core::ErrorCode::BadRecord) if it has come already.
    pub(crate) fn restore(&mut self, key: K, state: S) -> Result<u32> {
        if self.index.find(&key).is_some() {
            return Err(twice());
        }
        Ok(self.settle(key, Some(state), (0, 0)))
    }
}

impl<K: Key, S> fmt::Debug for KeyedStates<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedStates({} keys)", self.len())
    }
}

#[cfg(test)]
#[path = "states_tests.rs"]
mod tests;
