//! Something for each key, at a place that timers can name.

use std::borrow::Cow;
use std::fmt;

use ardea_core::{Cut, CutWriter, Epoch, Key, Progress, Result, StateChunk};

use crate::keyed::changes::Changes;
use crate::keyed::{twice, write_removed};
use crate::keyed_table::KeyIndex;

/// The name of the one state that keyed operators have.
pub(crate) const STATE: &str = "keys";

/// How many places a call looks at, at the most, for what belongs to a cut.
pub(crate) const PLACES_PER_CALL: usize = 1_024;

/// One state a key, at the key's slot, which stays until the key is removed; then both state and slot are free.
///
/// Nothing depends on the order of a hash table, so that equal inputs give equal outputs.
///
/// Where cuts are taken, whoever changes a state [touches](Self::touch) it before, which costs a comparison, and for the first change of
/// a key in each epoch an entry in a list. If the state belongs to a cut that is being written, and has not been written, it is
/// written then. A key that is removed keeps its slot until that is committed.
pub(crate) struct KeyedStates<K, S> {
    index: KeyIndex<K>,
    slots: Vec<Slot<S>>,
    /// How many keys have a state.
    live: usize,
    /// Between two cuts one number; zero where no cuts are taken.
    generation: u32,
    changes: Option<Box<Changes>>,
}

/// The place of a key.
struct Slot<S> {
    /// None where the slot is free, or the key has been removed.
    state: Option<S>,
    /// The generation in which it was changed last.
    changed: u32,
    /// The generation whose cut it was written to last.
    written: u32,
}

impl<K, S> Default for KeyedStates<K, S> {
    fn default() -> Self {
        KeyedStates {
            index: KeyIndex::default(),
            slots: Vec::new(),
            live: 0,
            generation: 0,
            changes: None,
        }
    }
}

impl<K: Key, S> KeyedStates<K, S> {
    /// Keeps track of changes from now on, as cuts will be taken. Nothing may be in it yet, unless it does so already.
    pub(crate) fn keep_track(&mut self) {
        if self.changes.is_none() {
            self.generation = 1;
            self.changes = Some(Box::default());
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
    fn insert(&mut self, key: K, state: S) -> u32 {
        let slot = self.index.insert(key);
        let mut new = Slot {
            state: Some(state),
            changed: self.generation,
            written: 0,
        };
        if let Some(changes) = &mut self.changes {
            changes.note(slot);
            // It is no part of a cut that was taken before.
            new.written = changes.writing().map_or(0, |w| w.generation);
        }
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = new,
            None => self.slots.push(new),
        }
        self.live += 1;
        slot
    }

    /// A key comes again whose removal has not been committed.
    #[cold]
    fn revive(&mut self, slot: u32, state: S) {
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
        let changes = self.changes.as_ref();
        changes.is_some_and(|changes| changes.writing().is_some())
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
        let Some(changes) = &mut self.changes else {
            return;
        };
        changes.note(slot);
        let place = &mut self.slots[slot as usize];
        let before = std::mem::replace(&mut place.changed, self.generation);
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
        match &mut self.changes {
            Some(changes) => changes.note_removal(),
            None => self.index.remove(slot),
        }
        Some(state)
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// One more than the highest slot in use so far.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// What is there now belongs to this cut.
    pub(crate) fn take_cut(&mut self, cut: Cut) {
        let Some(changes) = &mut self.changes else {
            return;
        };
        changes.freeze(cut.epoch, self.generation);
        self.generation += 1;
        let base = changes.base;
        if changes.has_grown_beyond(self.slots.len()) {
            let slots = self.slots.iter().zip(0..);
            let changed = slots.filter(|(place, _)| place.changed > base);
            changes.merge(changed.map(|(_, slot)| slot).collect());
        }
        let count = cut.is_full().then_some(self.slots.len() as u32);
        changes.begin(cut, self.generation - 1, count);
    }

    /// Writes on at the cut that was taken last; `write` appends the entry of the key at a slot.
    pub(crate) fn write_cut(
        &mut self,
        writer: &mut CutWriter<'_>,
        mut write: impl FnMut(&mut StateChunk, &K, u32, &S) -> Result<()>,
    ) -> Result<Progress> {
        let Some(changes) = &mut self.changes else {
            return Ok(Progress::DONE);
        };
        if let Err(error) = changes.write_aside(writer) {
            changes.end();
            return Err(error);
        }
        for _ in 0..PLACES_PER_CALL {
            if !writer.has_room() {
                return Ok(Progress::MADE);
            }
            let Some(slot) = changes.next() else {
                changes.end();
                return Ok(Progress::DONE);
            };
            let Some(writing) = changes.writing() else {
                return Ok(Progress::DONE);
            };
            let place = &mut self.slots[slot as usize];
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
    pub(crate) fn commit(&mut self, epoch: Epoch) -> Progress {
        let Some(changes) = &mut self.changes else {
            return Progress::DONE;
        };
        changes.commit(epoch);
        for _ in 0..PLACES_PER_CALL {
            let Some((slot, generation)) = changes.next_to_free() else {
                return Progress::DONE;
            };
            let place = &mut self.slots[slot as usize];
            let is_older = place.changed > 0 && place.changed <= generation;
            if is_older && place.state.is_none() {
                place.changed = 0;
                self.index.remove(slot);
            }
        }
        Progress::MADE
    }

    /// An epoch is given up: its cut is void.
    pub(crate) fn give_up(&mut self, epoch: Epoch) {
        if let Some(changes) = &mut self.changes {
            changes.give_up(epoch);
        }
    }

    /// A key comes back with its state; its slot.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`](ardea_core::ErrorCode::BadRecord) if it has come already.
    pub(crate) fn restore(&mut self, key: K, state: S) -> Result<u32> {
        if self.index.find(&key).is_some() {
            return Err(twice());
        }
        let slot = self.index.insert(key);
        self.slots.resize_with(self.index.slots(), || Slot {
            state: None,
            changed: 0,
            written: 0,
        });
        self.slots[slot as usize].state = Some(state);
        self.live += 1;
        Ok(slot)
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
