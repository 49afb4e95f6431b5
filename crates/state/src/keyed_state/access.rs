//! Access to values by key and by slot.

use std::borrow::Cow;

use ardea_core::{Error, ErrorCode, Key, PartitionId, Result, Timestamp};

use super::timers::KeyTimers;
use super::{KeyedState, TimedValue, read, write};

impl<K: Key, S> KeyedState<K, S> {
    /// Returns the slot of `key`. A new key has the value `create()`; a key on disk is loaded.
    ///
    /// # Errors
    /// The key cannot be read from disk.
    #[inline]
    pub fn slot(&mut self, key: Cow<'_, K>, create: impl FnOnce() -> S) -> Result<u32> {
        let (name, codecs, timers) = (self.table.name, &self.codecs, &mut self.timers);
        let create = || TimedValue {
            value: create(),
            used: Timestamp::MIN,
        };
        self.table.slot_or_load(key, create, |slot, entry| {
            let (_, state, times) = read(name, codecs, entry)?;
            timers.set(slot, times);
            Ok(state)
        })
    }

    /// Works like [`slot`](Self::slot), for states without [spilling](Self::allow_spilling).
    #[inline]
    pub fn slot_in_memory(&mut self, key: Cow<'_, K>, create: impl FnOnce() -> S) -> u32 {
        self.table.slot_or_insert(key, || TimedValue {
            value: create(),
            used: Timestamp::MIN,
        })
    }

    /// Returns the slot and the value of `key`, prepared for a change. A new key has the value
    /// `create()`.
    ///
    /// # Errors
    /// The key cannot be read from disk.
    pub fn entry(&mut self, key: Cow<'_, K>, create: impl FnOnce() -> S) -> Result<(u32, &mut S)> {
        let slot = self.slot(key, create)?;
        match self.update(slot) {
            Some((_, value)) => Ok((slot, value)),
            None => Err(Error::new(ErrorCode::Internal, "a key has no state")),
        }
    }

    /// Returns the slot of `key`, if the key is in memory.
    #[inline]
    pub fn find(&self, key: &K) -> Option<u32> {
        self.table.find(key)
    }

    /// Returns the value of `key`, if the key is in memory.
    pub fn value(&self, key: &K) -> Option<&S> {
        self.get(self.find(key)?)
    }

    /// Returns the value of a slot; `None` if the slot is free.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<&S> {
        self.table.get(slot).map(|state| &state.value)
    }

    /// Returns the key of a slot; `None` if the slot is free.
    pub fn key(&self, slot: u32) -> Option<&K> {
        self.table.get(slot).map(|_| self.table.key(slot))
    }

    /// Returns the event time of the last use of a slot, if there is a time-to-live.
    #[inline]
    pub fn last_used(&self, slot: u32) -> Option<Timestamp> {
        let used = self.table.get(slot)?.used;
        (used != Timestamp::MIN).then_some(used)
    }

    /// Returns the number of slots used so far: every slot is below it.
    pub fn slots(&self) -> u32 {
        u32::try_from(self.table.slots()).unwrap_or(u32::MAX)
    }

    /// Returns true if a snapshot is being written.
    pub fn is_writing_snapshot(&self) -> bool {
        self.table.is_writing()
    }

    /// Prepares the state or timers of a key for a change: a snapshot in progress retains the old
    /// contents.
    #[inline]
    pub(super) fn touch(&mut self, slot: u32) {
        let format = (self.table.name, &self.codecs, &self.timers);
        self.table.touch(slot, |chunk, key, state| {
            write(format, chunk, (key, slot), state)
        });
    }

    /// Returns the key and value of a slot, prepared for a change; `None` if the slot is free.
    #[inline]
    pub fn update(&mut self, slot: u32) -> Option<(&K, &mut S)> {
        self.touch(slot);
        let (key, state) = self.table.get_mut(slot)?;
        Some((key, &mut state.value))
    }

    /// Returns the key, value and timers of a slot, prepared for a change, and extends the
    /// time-to-live: the key counts as used at `time`, or at the watermark if that is later.
    #[inline]
    pub fn use_at(&mut self, slot: u32, time: Timestamp) -> Option<(&K, &mut S, KeyTimers<'_>)> {
        self.touch(slot);
        let (key, state) = self.table.get_mut(slot)?;
        if let Some(ttl) = self.timers.ttl {
            let time = time.max(self.timers.watermark.0);
            if state.used == Timestamp::MIN {
                self.timers.expiry.set(slot, time + ttl);
            }
            state.used = state.used.max(time);
        }
        let timers = KeyTimers {
            timers: &mut self.timers,
            slot,
        };
        Some((key, &mut state.value, timers))
    }

    /// Removes the key of a slot with its timers, and returns its value.
    pub fn remove(&mut self, slot: u32) -> Option<S> {
        self.touch(slot);
        let removed = self.table.remove(slot)?;
        self.timers.forget(slot);
        Some(removed.value)
    }

    /// Returns true if some keys are not restored yet.
    #[inline]
    pub fn is_restoring(&self) -> bool {
        self.table.is_restoring()
    }

    /// Returns true if a record of this partition must be buffered: the partition is not restored,
    /// or has buffered records. Requests the partition if necessary.
    pub fn must_buffer(&mut self, partition: PartitionId) -> bool {
        self.table.must_buffer(partition)
    }

    /// Returns the maximum number of buffered records.
    pub fn max_buffered(&self) -> usize {
        self.table.max_buffered()
    }

    /// Returns the next restored partition with buffered records.
    pub fn next_buffered_partition(&self) -> Option<PartitionId> {
        self.table.next_buffered_partition()
    }

    /// Marks the buffered records of the [next partition](Self::next_buffered_partition) as
    /// processed.
    pub fn finish_buffered_partition(&mut self) {
        self.table.finish_buffered_partition();
    }

    /// Returns the number of leading records that may be processed: those before the first record
    /// with a key that may not be restored yet.
    pub fn ready<'k>(&mut self, keys: impl ExactSizeIterator<Item = Cow<'k, K>>) -> usize {
        self.table.ready(keys)
    }
}
