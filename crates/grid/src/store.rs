//! The entries of one map in one partition.
//!
//! Keys and values lie one behind the other in one piece of memory; a hash table of small numbers finds them. So an entry costs its bytes and
//! about 50 more, a million entries are a handful of allocations, and a look-up allocates nothing.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;

/// What an entry costs besides key and value, in bytes: its slot, and its share of the table.
const OVERHEAD: usize = size_of::<Slot>() + 8;

/// Memory of what is gone is used again when there is as much of it as of the rest, but not for less than this, in bytes.
const LEAST_WASTE: usize = 16 << 10;

/// Entries by key, each with the number of the change that made it.
///
/// Every entry has a slot, which it keeps for as long as it is there: who goes through the slots in order meets every entry that was there all the
/// while, whatever comes and goes meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Store {
    table: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    bytes: Vec<u8>,
    /// How many of the bytes belong to nothing any more.
    waste: usize,
    expiring: usize,
}

/// Where an entry lies.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    version: u64,
    /// Microseconds since the Unix epoch; the greatest number for never.
    expires: i64,
    at: u32,
    key: u32,
    value: u32,
    /// How many bytes it has, at least those of key and value; none of a free slot.
    room: u32,
}

/// Never, as a time at which an entry expires.
pub const NEVER: i64 = i64::MAX;

/// An entry of a [`Store`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The change that made it.
    pub version: u64,
    /// When it expires, in microseconds since the Unix epoch; [`NEVER`] if it doesn't.
    pub expires: i64,
}

/// Spreads what the hash of a key says. All keys of a partition agree in some of its bits.
fn spread(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Store {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// What the entries cost, in bytes.
    pub fn cost(&self) -> usize {
        self.bytes.len() - self.waste + self.len() * OVERHEAD
    }

    /// What an entry costs, in bytes.
    pub const fn cost_of(key: usize, value: usize) -> usize {
        key + value + OVERHEAD
    }

    /// How many entries expire.
    pub fn expiring(&self) -> usize {
        self.expiring
    }

    /// The entry of a key. Allocates nothing.
    #[inline]
    pub fn get(&self, hash: u64, key: &[u8]) -> Option<Entry<'_>> {
        let is_it = |at: &u32| self.is_key(*at, hash, key);
        let at = self.table.find(spread(hash), is_it)?;
        Some(self.entry(*at as usize))
    }

    fn is_key(&self, at: u32, hash: u64, key: &[u8]) -> bool {
        let slot = &self.slots[at as usize];
        slot.hash == hash && slot.key as usize == key.len() && self.key(slot) == key
    }

    fn key(&self, slot: &Slot) -> &[u8] {
        &self.bytes[slot.at as usize..][..slot.key as usize]
    }

    fn entry(&self, at: usize) -> Entry<'_> {
        let slot = &self.slots[at];
        let both = &self.bytes[slot.at as usize..][..(slot.key + slot.value) as usize];
        let (key, value) = both.split_at(slot.key as usize);
        Entry {
            key,
            value,
            version: slot.version,
            expires: slot.expires,
        }
    }

    /// Whether an entry of these lengths can still be addressed, here and in any other copy: those have as much again that belongs to nothing at most.
    pub fn has_place(&self, key: usize, value: usize) -> bool {
        let used = (self.bytes.len() - self.waste) as u64;
        let all = used.saturating_add((key as u64).saturating_add(value as u64));
        let most = u64::from(u32::MAX) / 2 - LEAST_WASTE as u64;
        all < most && self.slots.len() < u32::MAX as usize
    }

    /// Sets what a key has. The caller has asked whether there [is place](Self::has_place).
    pub fn set(&mut self, hash: u64, entry: Entry<'_>) {
        self.reclaim();
        let Store {
            table,
            slots,
            free,
            bytes,
            waste,
            expiring,
        } = self;
        let is_it = |at: &u32| {
            let slot = &slots[*at as usize];
            slot.hash == hash
                && slot.key as usize == entry.key.len()
                && &bytes[slot.at as usize..][..entry.key.len()] == entry.key
        };
        let need = entry.key.len() + entry.value.len();
        *expiring += usize::from(entry.expires != NEVER);
        match table.entry(spread(hash), is_it, |at| spread(slots[*at as usize].hash)) {
            TableEntry::Occupied(found) => {
                let slot = &mut slots[*found.get() as usize];
                *expiring -= usize::from(slot.expires != NEVER);
                if need > slot.room as usize {
                    *waste += slot.room as usize;
                    slot.at = bytes.len() as u32;
                    slot.room = need as u32;
                    bytes.extend_from_slice(entry.key);
                    bytes.extend_from_slice(entry.value);
                } else {
                    let start = slot.at as usize + entry.key.len();
                    bytes[start..start + entry.value.len()].copy_from_slice(entry.value);
                }
                slot.value = entry.value.len() as u32;
                slot.version = entry.version;
                slot.expires = entry.expires;
            }
            TableEntry::Vacant(vacant) => {
                let slot = Slot {
                    hash,
                    version: entry.version,
                    expires: entry.expires,
                    at: bytes.len() as u32,
                    key: entry.key.len() as u32,
                    value: entry.value.len() as u32,
                    room: need as u32,
                };
                bytes.extend_from_slice(entry.key);
                bytes.extend_from_slice(entry.value);
                let at = match free.pop() {
                    Some(at) => {
                        slots[at as usize] = slot;
                        at
                    }
                    None => {
                        slots.push(slot);
                        (slots.len() - 1) as u32
                    }
                };
                vacant.insert(at);
            }
        }
    }

    /// Removes the entry of a key; whether there was one.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> bool {
        let Store {
            table,
            slots,
            bytes,
            ..
        } = self;
        let is_it = |at: &u32| {
            let slot = &slots[*at as usize];
            slot.hash == hash
                && slot.key as usize == key.len()
                && &bytes[slot.at as usize..][..key.len()] == key
        };
        let Ok(found) = table.find_entry(spread(hash), is_it) else {
            return false;
        };
        let (at, _) = found.remove();
        let slot = &mut self.slots[at as usize];
        self.waste += slot.room as usize;
        self.expiring -= usize::from(slot.expires != NEVER);
        slot.key = u32::MAX;
        slot.room = 0;
        self.free.push(at);
        self.reclaim();
        true
    }

    /// Removes everything, and gives back its memory.
    pub fn clear(&mut self) {
        *self = Store::default();
    }

    /// The entries from this slot on, each with the slot behind it.
    pub fn entries_from(&self, slot: usize) -> impl Iterator<Item = (usize, Entry<'_>)> {
        let slots = self.slots.iter().enumerate().skip(slot);
        slots
            .filter(|(_, slot)| slot.key != u32::MAX)
            .map(|(at, _)| (at + 1, self.entry(at)))
    }

    /// Moves what is there together, if too much memory belongs to nothing.
    fn reclaim(&mut self) {
        if self.waste < LEAST_WASTE || self.waste * 2 < self.bytes.len() {
            return;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() - self.waste + LEAST_WASTE);
        for slot in self.slots.iter_mut().filter(|slot| slot.key != u32::MAX) {
            let length = slot.key + slot.value;
            let from = slot.at as usize;
            slot.at = bytes.len() as u32;
            slot.room = length;
            bytes.extend_from_slice(&self.bytes[from..from + length as usize]);
        }
        self.bytes = bytes;
        self.waste = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64;

    fn set(store: &mut Store, key: &[u8], value: &[u8], version: u64, expires: i64) {
        let entry = Entry {
            key,
            value,
            version,
            expires,
        };
        assert!(store.has_place(key.len(), value.len()));
        store.set(xxh3_64(key), entry);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(u8, usize, bool),
        Remove(u8),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => (any::<u8>(), 0_usize..3_000, any::<bool>()).prop_map(|(key, length, ends)| Step::Set(key, length, ends)),
            10 => any::<u8>().prop_map(Step::Remove),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn it_holds_what_an_ordinary_map_holds(steps in prop::collection::vec(step(), 0..300)) {
            let (mut store, mut model) = (Store::default(), BTreeMap::new());
            for (version, step) in (1..).zip(steps) {
                match step {
                    Step::Set(key, length, ends) => {
                        let expires = if ends { 7 } else { NEVER };
                        let value = vec![key ^ length as u8; length];
                        set(&mut store, &[key, 1], &value, version, expires);
                        model.insert(vec![key, 1], (value, version, expires));
                    }
                    Step::Remove(key) => {
                        let was = store.remove(xxh3_64(&[key, 1]), &[key, 1]);
                        prop_assert_eq!(was, model.remove(&vec![key, 1]).is_some());
                    }
                    Step::Clear => {
                        store.clear();
                        model.clear();
                    }
                }
            }
            let all: BTreeMap<_, _> = store
                .entries_from(0)
                .map(|(_, entry)| (entry.key.to_vec(), (entry.value.to_vec(), entry.version, entry.expires)))
                .collect();
            prop_assert_eq!(&all, &model);
            prop_assert_eq!(store.len(), model.len());
            prop_assert_eq!(store.expiring(), model.values().filter(|entry| entry.2 != NEVER).count());
            for (key, (value, ..)) in &model {
                let found = store.get(xxh3_64(key), key).map(|entry| entry.value.to_vec());
                prop_assert_eq!(found.as_ref(), Some(value));
            }
            let content: usize = model.iter().map(|(key, entry)| key.len() + entry.0.len()).sum();
            prop_assert!(store.bytes.len() <= 2 * (content + store.waste).max(LEAST_WASTE) + 3_000);
        }

        #[test]
        fn who_goes_through_in_pieces_meets_all_that_stays(
            early in prop::collection::btree_set(any::<u8>(), 0..100),
            changes in prop::collection::vec((any::<u8>(), any::<bool>()), 0..200),
            piece in 1_usize..10,
        ) {
            let mut store = Store::default();
            for key in &early {
                set(&mut store, &[*key], b"early", 1, NEVER);
            }
            let (mut met, mut gone, mut cursor) = (BTreeSet::new(), BTreeSet::new(), 0);
            let mut changes = changes.into_iter();
            loop {
                let found: Vec<_> = store.entries_from(cursor).take(piece).map(|(next, entry)| (next, entry.key[0])).collect();
                met.extend(found.iter().map(|(_, key)| *key));
                match found.last() {
                    Some((next, _)) => cursor = *next,
                    None => break,
                }
                for (key, sets) in changes.by_ref().take(3) {
                    if sets {
                        set(&mut store, &[key], b"a longer value than before", 2, NEVER);
                    } else if store.remove(xxh3_64(&[key]), &[key]) {
                        gone.insert(key);
                    }
                }
            }
            prop_assert!(early.iter().all(|key| met.contains(key) || gone.contains(key)));
        }
    }

    #[test]
    fn no_more_is_taken_than_every_copy_can_address() {
        let mut store = Store::default();
        set(&mut store, b"key", b"value", 1, NEVER);
        assert!(store.has_place(3, 1 << 30));
        assert!(!store.has_place(3, (1 << 31) - LEAST_WASTE));
        assert!(!store.has_place(usize::MAX, usize::MAX));
    }

    #[test]
    fn memory_of_what_is_gone_is_used_again() {
        let mut store = Store::default();
        for round in 0..200_u32 {
            for key in 0..100_u32 {
                let value = vec![0; 500 + (round as usize * 7 + key as usize) % 100];
                set(&mut store, &key.to_le_bytes(), &value, 1, NEVER);
            }
        }
        assert!(
            store.bytes.capacity() < 600 * 100 * 4,
            "{}",
            store.bytes.capacity()
        );
    }
}
