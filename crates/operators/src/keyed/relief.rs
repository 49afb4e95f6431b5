//! State that is larger than memory: the keys that were not used for longest lie on disk, until they are used again.
//!
//! A key with its state is in memory or on disk. Records find it as ever where it is in memory; where a key is not found there, it is looked
//! for on disk before it counts as new. Between two batches of records, [`relieve`](KeyedStates::relieve) moves keys to disk, many at a time,
//! until memory suffices: so a key that comes often never leaves memory. What of a key falls due lies on disk in order of time.
//!
//! Cuts hold the same entries wherever a key is: those in memory are written, or put aside, as ever, also when they go to disk; those on
//! disk when the cut is taken are written from what the disk held then.

use std::borrow::Cow;

use ardea_core::{
    CutWriter, Error, ErrorCode, InstanceContext, InstanceMetrics, Key, PartitionId, Progress,
    RestoredEntry, Result, StateChunk, StateEntry,
};

use crate::keyed::cold::Cold;
use crate::keyed::cold_entry::{Due, Dues, Head};
use crate::keyed::lives::Lives;
use crate::keyed::states::{FREE, STATE, Slot};
use crate::keyed::{KeyedStates, write_removed};

/// How many keys stay in memory at the least, however little of it there is.
const FEWEST_KEYS: usize = if cfg!(test) { 4 } else { 64 };
/// How many keys at the most go to disk beyond those that have to.
const AHEAD: usize = 512;
/// How many go at the most in one call, so that it stays short; a chunk brings fewer.
const MOST_AT_ONCE: usize = 4_096;
/// What a key takes in the table, besides itself and its slot.
const TABLE_BYTES: usize = 16;
/// How many batches of records go by from one look at a state's size to the next, if the state is small; else more, in proportion.
const BATCHES_PER_LOOK: u32 = 32;
const SMALL: usize = 256;

/// About how many bytes a key and its state take when they are written, and who is next to be looked at, or to go.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct WrittenSize {
    /// The mean, in sixteenths.
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

    /// The next slot of so many.
    fn next(&mut self, slots: usize) -> u32 {
        self.hand = match (self.hand as usize) < slots {
            true => self.hand + 1,
            false => 1,
        };
        self.hand - 1
    }
}

impl<K: Key, S> KeyedStates<K, S> {
    /// Does as the context says: keeps track of changes where cuts will be taken, and, if somebody knows how states are written, may put them on
    /// disk. Nothing may be in it yet, unless it did so in another life: then what is on disk stays where it is.
    ///
    /// # Errors
    /// If there is no place on disk.
    pub(crate) fn attach(&mut self, context: &InstanceContext, is_kept: bool) -> Result<()> {
        if context.guarantee.keeps_state() {
            self.keep_track();
        }
        if let Some(store) = context.local.as_ref().filter(|_| is_kept)
            && self.cold.is_none()
        {
            self.cold = Some(Box::new(Cold::new(store.open()?)));
            // From here on it says also which keys have been used lately.
            self.generation = self.generation.max(1);
        }
        Ok(())
    }

    /// Whether state may lie on disk.
    #[inline]
    pub(crate) fn has_disk(&self) -> bool {
        self.cold.is_some()
    }

    /// As [`slot_or_insert`](Self::slot_or_insert), with a look at the disk before a key counts as new: `thaw` reads what was written of it.
    ///
    /// # Errors
    /// What reading returns, and `thaw`.
    #[inline]
    pub(crate) fn slot_or_load(
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

    /// Brings a key back from disk, if it is there; its slot, which is a grave if it had been removed.
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
            state: STATE,
            partition: Some(head.partition),
            key: bytes,
            value: &value,
        };
        let slot = self.settle(key(&entry)?, None, (head.changed, head.born));
        if head.is_removed {
            // Its slot stays, as somebody is about to use it.
            return Ok(Some(slot));
        }
        self.slots[slot as usize].state = Some(thaw(slot, &entry)?);
        self.live += 1;
        Ok(Some(slot))
    }

    /// A time before which nothing of this kind falls due for keys on disk, if anything does.
    #[inline]
    pub(crate) fn first_due(&self, kind: Due) -> Option<i64> {
        self.cold.as_ref().and_then(|cold| cold.first_due(kind))
    }

    /// Brings back keys of which something of this kind is due until this time, in order of time, `most` at the most; their slots.
    ///
    /// # Errors
    /// What reading returns, and `key` and `thaw`, which read what was written.
    pub(crate) fn load_due(
        &mut self,
        (kind, until, most): (Due, i64, usize),
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

    /// Moves keys to disk until memory suffices. To be called between batches of records, as it takes slots away.
    ///
    /// `freeze` appends the entry of the key at a slot, forgets whatever else is known of the slot, and says what falls due of it.
    ///
    /// # Errors
    /// What writing returns: nothing is lost then, but memory goes on growing.
    pub(crate) fn relieve(
        &mut self,
        mut freeze: impl FnMut(&mut StateChunk, &K, u32, &S) -> Result<Dues>,
    ) -> Result<()> {
        let Some(cold) = &self.cold else {
            return Ok(());
        };
        let most = usize::try_from(cold.memory()).unwrap_or(usize::MAX) / self.bytes_per_key();
        let (most, used) = (most.max(FEWEST_KEYS), self.index.len());
        if used <= most {
            return Ok(());
        }
        let mut left = (used - most + (most / 16).min(AHEAD)).min(MOST_AT_ONCE);
        // So many that were used lately are passed over; if there are more, anyone goes.
        let mut patience = 4 * left + (self.slots.len() / 4).min(MOST_AT_ONCE);
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

    /// Moves the key at a slot to disk.
    fn evict(
        &mut self,
        slot: u32,
        freeze: &mut impl FnMut(&mut StateChunk, &K, u32, &S) -> Result<Dues>,
    ) -> Result<()> {
        let (place, key) = (&self.slots[slot as usize], self.index.key(slot));
        let mut chunk = StateChunk::default();
        let dues = match &place.state {
            Some(state) => freeze(&mut chunk, key, slot, state)?,
            None => {
                write_removed((STATE, &[]), &mut chunk, key)?;
                Dues::default()
            }
        };
        let Some((entry, partition)) = entry_in(&chunk) else {
            let what = "a state that is to go to disk was not written";
            return Err(Error::new(ErrorCode::Internal, what));
        };
        let mut head = Head {
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

    /// Writes on at what a cut holds of the keys on disk, and ends it.
    pub(super) fn write_cold(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let written = match &mut self.cold {
            Some(cold) => cold.write_cut(writer),
            None => Ok(Progress::DONE),
        };
        if written.as_ref().map_or(true, |progress| progress.done) {
            if let Some(lives) = &mut self.tracking {
                lives.changes.end();
            }
            if let Some(cold) = &mut self.cold {
                cold.end_cut();
            }
        }
        written
    }

    /// A key comes back from a snapshot with what was written of it: so large are states. Else memory would be full of them before anybody
    /// has looked at one.
    pub(crate) fn weigh(&mut self, entry: &RestoredEntry<'_>) {
        self.written_size.note(entry.key.len() + entry.value.len());
    }

    /// About how many bytes of memory a key takes with its state.
    fn bytes_per_key(&self) -> usize {
        size_of::<Slot<S>>() + size_of::<K>() + TABLE_BYTES + self.written_size.mean()
    }

    /// Tells how much there is, about: to be called once a batch of records. `write` appends the entry of the key at a slot; every now and then
    /// it is asked for one, as nobody else knows how large states are.
    #[inline]
    pub(crate) fn account(
        &mut self,
        metrics: &InstanceMetrics,
        write: impl FnOnce(&mut StateChunk, &K, u32, &S) -> Result<()>,
    ) {
        if self.written_size.batches == 0 {
            let looked_at = u32::try_from(1 + self.look(write) / SMALL).unwrap_or(u32::MAX);
            self.written_size.batches = BATCHES_PER_LOOK.saturating_mul(looked_at);
        }
        self.written_size.batches -= 1;
        let here = (
            self.live as u64,
            (self.index.len() * self.bytes_per_key()) as u64,
        );
        let on_disk = self.cold.as_ref();
        metrics.note_state(
            here,
            on_disk.map_or((0, 0), |c| (c.keys() as u64, c.bytes())),
        );
    }

    /// Looks at the size of one state, if there is one at hand: its bytes.
    #[cold]
    fn look(&mut self, write: impl FnOnce(&mut StateChunk, &K, u32, &S) -> Result<()>) -> usize {
        if self.slots.is_empty() {
            return 0;
        }
        let slot = self.written_size.next(self.slots.len());
        let Some(state) = &self.slots[slot as usize].state else {
            return 0;
        };
        let mut chunk = StateChunk::default();
        // One that can't be written fails the next cut, with the reason.
        if write(&mut chunk, self.index.key(slot), slot, state).is_ok() {
            self.written_size.note(chunk.byte_len());
        }
        chunk.byte_len()
    }
}

/// The entry that was written, and its partition.
fn entry_in(chunk: &StateChunk) -> Option<(StateEntry<'_>, PartitionId)> {
    let entry = chunk.entries().next()?;
    Some((entry, entry.partition?))
}

/// Puts an entry aside that is about to leave memory, if it belongs to the cut that is being written and has not been.
fn put_aside<S>(lives: &mut Lives, slot: u32, place: &Slot<S>, entry: StateEntry<'_>) {
    let Some(writing) = lives.changes.writing() else {
        return;
    };
    let is_due = writing.holds(slot, place.changed) && place.written != writing.generation;
    if is_due && (entry.value.is_some() || !writing.is_full()) {
        lives.changes.put_aside(|chunk| chunk.push(entry));
    }
}

#[cfg(test)]
#[path = "relief_tests.rs"]
mod tests;
