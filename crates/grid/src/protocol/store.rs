//! Entries of one map in one partition.
//!
//! Keys and values are concatenated in one buffer; a hash table of small numbers locates them. The
//! overhead is about 50 bytes per entry, a million entries need a handful of allocations, and a
//! lookup allocates nothing. Large values are stored separately in their own memory; they are not
//! copied when they are set or when other entries are removed.

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;
use prefetch_index::prefetch_index;

/// Overhead of an entry besides key and value, in bytes: its slot and its share of the table.
const OVERHEAD: usize = size_of::<Slot>() + 8;

/// Minimum unused memory of the buffer, in bytes, for a compaction. At least half of the buffer
/// must also be unused.
const LEAST_WASTE: usize = 16 << 10;

/// Length from which on values are stored separately, in bytes.
pub const APART_BYTES: usize = 16 << 10;

/// Maximum number of keys per [prefetch](Store::look_ahead): about the number of concurrent memory
/// accesses of a processor.
pub(crate) const AHEAD: usize = 16;

/// Size of a cache line in bytes, and the number of lines prefetched per entry.
const LINE_BYTES: usize = 64;
const LINES: usize = 4;

/// Entries by key, each with the number of the change that set it.
///
/// Every entry has a slot, which it keeps until it is removed. A scan in slot order therefore
/// visits every entry that is present during the whole scan.
#[derive(Clone, Debug, Default)]
pub struct Store {
    table: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    bytes: Vec<u8>,
    /// Number of unused bytes in the buffer.
    waste: usize,
    /// Separately stored values, by slot.
    apart: BTreeMap<u32, Bytes>,
    apart_bytes: usize,
    expiring: usize,
}

/// Location and metadata of an entry.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    version: u64,
    /// Microseconds since the Unix epoch; [`NEVER`] for none.
    expires: i64,
    at: u32,
    key: u32,
    value: u32,
}

impl Slot {
    fn is_apart(&self) -> bool {
        self.value as usize >= APART_BYTES
    }

    /// Returns the number of bytes in the buffer: the key, and the value unless it is stored
    /// separately.
    fn room(&self) -> usize {
        let value = if self.is_apart() { 0 } else { self.value };
        self.key as usize + value as usize
    }
}

/// Expiry time of an entry that does not expire.
pub const NEVER: i64 = i64::MAX;

/// An entry of a [`Store`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The value, if it is stored separately.
    apart: Option<&'a Bytes>,
    /// The change that set it.
    pub version: u64,
    /// Expiry time in microseconds since the Unix epoch; [`NEVER`] for none.
    pub expires: i64,
}

impl Entry<'_> {
    /// Returns an owned value: a copy, or shared memory if it is stored separately.
    pub fn to_bytes(&self) -> Bytes {
        match self.apart {
            Some(value) => value.clone(),
            None => Bytes::copy_from_slice(self.value),
        }
    }
}

/// A new value for a key.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: Value<'a>,
    /// The change that sets it.
    pub version: u64,
    /// Expiry time in microseconds since the Unix epoch; [`NEVER`] for none.
    pub expires: i64,
}

/// A value to be set, and the treatment of its memory. Short values are always copied.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A large value is copied, too.
    Copied(&'a [u8]),
    /// A large value is shared, together with the allocation that it is part of.
    Kept(&'a Bytes),
}

impl Value<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Value::Copied(bytes) => bytes,
            Value::Kept(bytes) => bytes,
        }
    }

    fn to_bytes(self) -> Bytes {
        match self {
            Value::Copied(bytes) => Bytes::copy_from_slice(bytes),
            Value::Kept(bytes) => bytes.clone(),
        }
    }
}

/// Mixes the hash of a key, since the hashes of all keys of a partition agree in some bits.
fn spread(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Store {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the memory size of the entries in bytes.
    pub fn cost(&self) -> usize {
        self.bytes.len() - self.waste + self.apart_bytes + self.len() * OVERHEAD
    }

    /// Returns the memory size of an entry in bytes.
    pub const fn cost_of(key: usize, value: usize) -> usize {
        key + value + OVERHEAD
    }

    /// Returns the number of bytes of an entry in the buffer: all but a separately stored value.
    pub(crate) const fn beside(key: usize, value: usize) -> usize {
        match value < APART_BYTES {
            true => key.saturating_add(value),
            false => key,
        }
    }

    /// Returns the number of entries with an expiry time.
    pub fn expiring(&self) -> usize {
        self.expiring
    }

    /// Returns the entry of a key. Allocates nothing.
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
        let both = &self.bytes[slot.at as usize..][..slot.room()];
        let (key, value) = both.split_at(slot.key as usize);
        let apart = match slot.is_apart() {
            true => self.apart.get(&(at as u32)),
            false => None,
        };
        Entry {
            key,
            value: apart.map_or(value, |value| value),
            apart,
            version: slot.version,
            expires: slot.expires,
        }
    }

    /// Returns true if an entry of these lengths remains addressable after `coming` more bytes have
    /// been added, here and in any other replica. Replicas differ in unused memory, which is at
    /// most as large as the used memory.
    pub fn has_place(&self, key: usize, value: usize, coming: usize) -> bool {
        let is_addressed = u32::try_from(value).is_ok();
        let used = (self.bytes.len() - self.waste) as u64;
        let more = [Store::beside(key, value), coming].into_iter();
        let all = more.fold(used, |sum, bytes| sum.saturating_add(bytes as u64));
        let most = u64::from(u32::MAX) / 2 - LEAST_WASTE as u64;
        is_addressed && all < most && self.slots.len() < u32::MAX as usize
    }

    /// Prefetches the memory that [`set`](Self::set) will access for keys with these hashes, at
    /// most [`AHEAD`]. The memory accesses then overlap instead of following each other.
    pub(crate) fn look_ahead(&self, hashes: &[u64]) {
        let mut places = [usize::MAX; AHEAD];
        for (place, hash) in places.iter_mut().zip(hashes) {
            // The first candidate, which is nearly always the right one.
            if let Some(slot) = self.table.find(spread(*hash), |_| true) {
                *place = *slot as usize;
                prefetch_index(&self.slots, *place);
            }
        }
        for slot in places.iter().filter_map(|place| self.slots.get(*place)) {
            let start = slot.at as usize;
            // The hardware prefetcher continues from there.
            for at in (start..start + slot.room()).step_by(LINE_BYTES).take(LINES) {
                prefetch_index(&self.bytes, at);
            }
        }
    }

    /// Sets the value of a key. The caller must have checked [`has_place`](Self::has_place).
    pub fn set(&mut self, hash: u64, setting: Setting<'_>) {
        self.reclaim();
        let Store {
            table,
            slots,
            free,
            bytes,
            waste,
            expiring,
            ..
        } = self;
        let is_it = |at: &u32| {
            let slot = &slots[*at as usize];
            slot.hash == hash
                && slot.key as usize == setting.key.len()
                && &bytes[slot.at as usize..][..setting.key.len()] == setting.key
        };
        let mut new = Slot {
            hash,
            version: setting.version,
            expires: setting.expires,
            at: bytes.len() as u32,
            key: setting.key.len() as u32,
            value: setting.value.bytes().len() as u32,
        };
        let room = new.room();
        let beside = &setting.value.bytes()[..room - setting.key.len()];
        *expiring += usize::from(setting.expires != NEVER);
        let (at, had_apart) =
            match table.entry(spread(hash), is_it, |at| spread(slots[*at as usize].hash)) {
                TableEntry::Occupied(found) => {
                    let slot = &mut slots[*found.get() as usize];
                    *expiring -= usize::from(slot.expires != NEVER);
                    let had = slot.room();
                    if room > had {
                        *waste += had;
                        bytes.extend_from_slice(setting.key);
                        bytes.extend_from_slice(beside);
                    } else {
                        // The rest of the old memory is unused from now on.
                        *waste += had - room;
                        new.at = slot.at;
                        let start = slot.at as usize + setting.key.len();
                        bytes[start..start + beside.len()].copy_from_slice(beside);
                    }
                    let had_apart = slot.is_apart();
                    *slot = new;
                    (*found.get(), had_apart)
                }
                TableEntry::Vacant(vacant) => {
                    bytes.extend_from_slice(setting.key);
                    bytes.extend_from_slice(beside);
                    let at = match free.pop() {
                        Some(at) => {
                            slots[at as usize] = new;
                            at
                        }
                        None => {
                            slots.push(new);
                            (slots.len() - 1) as u32
                        }
                    };
                    vacant.insert(at);
                    (at, false)
                }
            };
        if had_apart || new.is_apart() {
            self.lay_apart(at, new.is_apart().then(|| setting.value.to_bytes()));
        }
    }

    /// Sets or removes the separately stored value of a slot.
    fn lay_apart(&mut self, slot: u32, value: Option<Bytes>) {
        self.apart_bytes += value.as_ref().map_or(0, Bytes::len);
        let had = match value {
            Some(value) => self.apart.insert(slot, value),
            None => self.apart.remove(&slot),
        };
        self.apart_bytes -= had.map_or(0, |had| had.len());
    }

    /// Removes the entry of a key. Returns true if there was one.
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
        self.waste += slot.room();
        self.expiring -= usize::from(slot.expires != NEVER);
        let was_apart = slot.is_apart();
        slot.key = u32::MAX;
        if was_apart {
            self.lay_apart(at, None);
        }
        self.free.push(at);
        self.reclaim();
        true
    }

    /// Removes all entries and frees their memory.
    pub fn clear(&mut self) {
        *self = Store::default();
    }

    /// Returns the entries from a slot on, each with the number of the slot after it.
    pub fn entries_from(&self, slot: usize) -> impl Iterator<Item = (usize, Entry<'_>)> {
        let slots = self.slots.iter().enumerate().skip(slot);
        slots
            .filter(|(_, slot)| slot.key != u32::MAX)
            .map(|(at, _)| (at + 1, self.entry(at)))
    }

    /// Compacts the buffer if too much of it is unused.
    fn reclaim(&mut self) {
        if self.waste < LEAST_WASTE || self.waste * 2 < self.bytes.len() {
            return;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() - self.waste + LEAST_WASTE);
        for slot in self.slots.iter_mut().filter(|slot| slot.key != u32::MAX) {
            let length = slot.room();
            let from = slot.at as usize;
            slot.at = bytes.len() as u32;
            bytes.extend_from_slice(&self.bytes[from..from + length]);
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
        let setting = Setting {
            key,
            value: Value::Copied(value),
            version,
            expires,
        };
        assert!(store.has_place(key.len(), value.len(), 0));
        store.set(xxh3_64(key), setting);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(u8, usize, bool),
        Remove(u8),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        let length = prop_oneof![4 => 0..3_000_usize, 1 => APART_BYTES - 2..APART_BYTES + 100];
        prop_oneof![
            20 => (any::<u8>(), length, any::<bool>()).prop_map(|(key, length, ends)| Step::Set(key, length, ends)),
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
            let is_apart = |value: &&Vec<u8>| value.len() >= APART_BYTES;
            let apart = model.values().map(|entry| &entry.0).filter(is_apart);
            let apart: usize = apart.map(Vec::len).sum();
            prop_assert_eq!(store.apart.values().map(Bytes::len).sum::<usize>(), apart);
            let all: usize = model.iter().map(|(key, entry)| key.len() + entry.0.len()).sum();
            let content = all - apart;
            prop_assert_eq!(store.apart_bytes, apart);
            prop_assert_eq!(store.cost(), all + model.len() * OVERHEAD);
            prop_assert!(store.bytes.len() <= 2 * content + LEAST_WASTE + 3 * APART_BYTES);
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
        assert!(store.has_place(3, 1 << 30, 0));
        assert!(store.has_place(3, 5, 1 << 30));
        assert!(!store.has_place(3, 5, (1 << 31) - LEAST_WASTE));
        assert!(!store.has_place(usize::MAX, usize::MAX, 0));
        assert!(!store.has_place(usize::MAX, 5, usize::MAX));
        assert!(!store.has_place(3, usize::MAX, 0));
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
