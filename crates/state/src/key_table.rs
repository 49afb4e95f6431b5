//! Tables from keys to values in dense slots: the storage of all keyed state.
//!
//! A [`KeyIndex`] assigns each key a slot, a dense number in the order of arrival. A [`KeyTable`]
//! stores a value per slot. Values of a key can therefore be stored in plain columns, and a scan of
//! all keys is a scan of a vector.
//!
//! A key that is a small number ([`Key::as_index`]) is found by one load from an array, others by
//! hash. A number is small if it is below 4,096 or below eight times the number of keys. The array
//! therefore takes at most 64 bytes per key (or 16 kB).

use std::borrow::Cow;
use std::hash::BuildHasher;

use ardea_core::{Key, RecordGuard};
use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// The marker of an unused place.
const VACANT: u32 = u32::MAX;
/// Keys below this number are always found by index.
const DIRECT_ALWAYS: u64 = 4096;
/// A table with n keys finds keys below n times this number by index.
const DIRECT_PER_KEY: u64 = 8;
/// A cleared table retains an array of at most this many places per key it held.
const KEPT_PER_KEY: usize = 64;

/// Assigns a slot to each key.
///
/// Slots start at zero and are dense. The slots of removed keys are reused first. At most 2³² − 1
/// keys.
///
/// ```
/// use ardea_state::KeyIndex;
///
/// let mut index = KeyIndex::default();
/// assert_eq!((index.insert("b"), index.insert("a")), (0, 1));
/// index.remove(0);
/// assert_eq!((index.find(&"b"), index.find(&"a")), (None, Some(1)));
/// assert_eq!(index.insert("c"), 0);
/// ```
#[derive(Debug)]
pub struct KeyIndex<K> {
    /// Slots of the keys that are small numbers.
    direct: Vec<u32>,
    /// Slots of all other keys.
    hashed: HashTable<u32>,
    /// Keys by slot. A removed key remains until its slot is reused.
    keys: Vec<K>,
    free: Vec<u32>,
    /// False if keys are never found, only their slots.
    is_searched: bool,
    hasher: RandomState,
    /// The number of keys to reserve room for, once it is known whether they go to the array or the
    /// hash table.
    expected: usize,
}

impl<K> Default for KeyIndex<K> {
    fn default() -> Self {
        KeyIndex {
            direct: Vec::new(),
            hashed: HashTable::new(),
            keys: Vec::new(),
            free: Vec::new(),
            is_searched: true,
            hasher: RandomState::default(),
            expected: 0,
        }
    }
}

impl<K: Key> KeyIndex<K> {
    /// Creates an index that assigns slots but finds no key.
    pub(crate) fn without_search() -> Self {
        KeyIndex {
            is_searched: false,
            ..KeyIndex::default()
        }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys.len() - self.free.len()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the highest slot used so far plus one: the required length of a column.
    #[inline]
    pub fn slots(&self) -> usize {
        self.keys.len()
    }

    /// Returns the key at `slot`. For a free slot, this is its previous key.
    #[inline]
    pub fn key(&self, slot: u32) -> &K {
        &self.keys[slot as usize]
    }

    /// Returns the keys by slot. A free slot still has its previous key.
    #[inline]
    pub fn keys(&self) -> &[K] {
        &self.keys
    }

    /// Returns the slot of `key`.
    #[inline]
    pub fn find(&self, key: &K) -> Option<u32> {
        find(&self.direct, self, key)
    }

    /// Returns the slot of `key` and whether it is new. A missing key is inserted.
    #[inline]
    pub fn find_or_insert(&mut self, key: Cow<'_, K>) -> (u32, bool) {
        match self.find(&key) {
            Some(slot) => (slot, false),
            None => (self.insert(key.into_owned()), true),
        }
    }

    /// Reserves room for about `keys` more keys if memory allows, to avoid rehashing as they
    /// arrive.
    pub fn reserve(&mut self, keys: usize) {
        // On failure the table grows on demand.
        let _ = self.keys.try_reserve(keys);
        self.expected = keys;
    }

    /// Assigns a slot to `key`, which must not have one.
    ///
    /// # Panics
    /// If there are 2³² − 1 keys already.
    #[cold]
    #[inline(never)]
    pub fn insert(&mut self, key: K) -> u32 {
        debug_assert!(self.find(&key).is_none(), "a key is inserted once");
        let index = key.as_index();
        let slot = match self.free.pop() {
            Some(slot) => {
                self.keys[slot as usize] = key;
                slot
            }
            None => {
                assert!(
                    self.keys.len() < VACANT as usize,
                    "a table holds fewer than 2^32 keys"
                );
                self.keys.push(key);
                (self.keys.len() - 1) as u32
            }
        };
        if !self.is_searched {
            return slot;
        }
        if let Some(place) = index.and_then(|index| self.direct_place_for(index)) {
            self.direct[place] = slot;
        } else {
            let (keys, hasher) = (&self.keys, &self.hasher);
            let hash = |slot: &u32| hasher.hash_one(&keys[*slot as usize]);
            let expected = std::mem::take(&mut self.expected);
            if expected > 0 {
                let _ = self.hashed.try_reserve(expected, hash);
            }
            self.hashed.insert_unique(hash(&slot), slot, hash);
        }
        slot
    }

    /// Removes the key at `slot`, which must be in use.
    pub fn remove(&mut self, slot: u32) {
        let key = &self.keys[slot as usize];
        match place_in(&self.direct, key) {
            Some(place) => self.direct[place] = VACANT,
            None => {
                let hash = self.hasher.hash_one(key);
                if let Ok(entry) = self.hashed.find_entry(hash, |found| *found == slot) {
                    entry.remove();
                }
            }
        }
        self.free.push(slot);
    }

    /// Removes all keys and retains memory for about as many.
    pub fn clear(&mut self) {
        if self.direct.len() > KEPT_PER_KEY * self.keys.len().max(DIRECT_ALWAYS as usize) {
            self.direct = Vec::new();
        } else if self.direct.len() <= 2 * DIRECT_PER_KEY as usize * self.keys.len() {
            self.direct.fill(VACANT);
        } else {
            for key in &self.keys {
                if let Some(place) = place_in(&self.direct, key) {
                    self.direct[place] = VACANT;
                }
            }
        }
        self.hashed.clear();
        self.keys.clear();
        self.free.clear();
    }

    /// Returns the array place of a key with this index. The array grows if the index is small
    /// enough.
    fn direct_place_for(&mut self, index: u64) -> Option<usize> {
        if index < self.direct.len() as u64 {
            return Some(index as usize);
        }
        if index >= DIRECT_ALWAYS.max(DIRECT_PER_KEY * self.len() as u64) {
            return None;
        }
        let place = index as usize;
        self.direct.resize((place + 1).next_power_of_two(), VACANT);
        // Keys that were too large for the array until now are moved to it, each at most once.
        let (keys, direct) = (&self.keys, &mut self.direct);
        self.hashed
            .retain(|slot| match place_in(direct, &keys[*slot as usize]) {
                Some(place) => {
                    direct[place] = *slot;
                    false
                }
                None => true,
            });
        Some(place)
    }
}

/// Returns the place of `key` in the array `direct` if the key is found by index.
#[inline]
fn place_in<K: Key>(direct: &[u32], key: &K) -> Option<usize> {
    key.as_index()
        .filter(|index| *index < direct.len() as u64)
        .map(|index| index as usize)
}

/// Returns the slot of `key`. `direct` is the array of `index`, passed separately so that loops can
/// keep it in registers.
#[inline]
fn find<K: Key>(direct: &[u32], index: &KeyIndex<K>, key: &K) -> Option<u32> {
    match place_in(direct, key) {
        Some(place) => Some(direct[place]).filter(|slot| *slot != VACANT),
        None => find_hashed(index, key),
    }
}

#[inline]
fn find_hashed<K: Key>(index: &KeyIndex<K>, key: &K) -> Option<u32> {
    if index.hashed.is_empty() {
        return None;
    }
    let hash = index.hasher.hash_one(key);
    index
        .hashed
        .find(hash, |slot| index.keys[*slot as usize] == *key)
        .copied()
}

/// A map from keys to values in slots. Keys that are small numbers are found by index, others by
/// hash.
///
/// ```
/// use std::borrow::Cow;
/// use ardea_state::KeyTable;
///
/// let mut lengths: KeyTable<usize, u32> = KeyTable::default();
/// lengths.update_each(&["to", "be", "not"], 0, |w| Cow::Owned(w.len()), || 0, |count, _| *count += 1);
/// assert_eq!((lengths.keys(), lengths.values()), (&[2, 3][..], &[2, 1][..]));
/// ```
#[derive(Debug)]
pub struct KeyTable<K, V> {
    index: KeyIndex<K>,
    values: Vec<V>,
}

impl<K, V> Default for KeyTable<K, V> {
    fn default() -> Self {
        KeyTable {
            index: KeyIndex::default(),
            values: Vec::new(),
        }
    }
}

impl<K: Key, V> KeyTable<K, V> {
    /// The number of keys.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the index, which maps keys to slots.
    pub fn index(&self) -> &KeyIndex<K> {
        &self.index
    }

    /// Returns the keys by slot. A free slot still has its previous key.
    pub fn keys(&self) -> &[K] {
        self.index.keys()
    }

    /// Returns the values by slot. A free slot still has its previous value.
    pub fn values(&self) -> &[V] {
        &self.values
    }

    /// Returns the values by slot, mutably.
    pub fn values_mut(&mut self) -> &mut [V] {
        &mut self.values
    }

    /// Returns the value of `key`, if the table has the key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.index.find(key).map(|slot| &self.values[slot as usize])
    }

    /// Returns the slot and value of `key`. A missing key is inserted with the value `create()`.
    #[inline]
    pub fn get_or_insert(&mut self, key: Cow<'_, K>, create: impl FnOnce() -> V) -> (u32, &mut V) {
        let slot = match self.index.find(&key) {
            Some(slot) => slot,
            None => self.insert(key.into_owned(), create()),
        };
        (slot, &mut self.values[slot as usize])
    }

    /// Updates the value of each record's key, which is initially `create()`. This is the hot loop
    /// of every keyed operator.
    ///
    /// `first` is the position of `records` in the current batch. A panic of a user function is
    /// attributed to the record at that position.
    #[inline]
    pub fn update_each<'r, T>(
        &mut self,
        records: &'r [T],
        first: usize,
        key: impl Fn(&'r T) -> Cow<'r, K>,
        create: impl Fn() -> V,
        update: impl Fn(&mut V, &'r T),
    ) {
        self.update_watched(records, first, key, create, update, &mut ());
    }

    /// Works like [`update_each`](Self::update_each) and notifies a [`ChangeListener`] before a
    /// value changes.
    #[inline]
    pub fn update_watched<'r, T>(
        &mut self,
        records: &'r [T],
        first: usize,
        key: impl Fn(&'r T) -> Cow<'r, K>,
        create: impl Fn() -> V,
        update: impl Fn(&mut V, &'r T),
        watch: &mut impl ChangeListener<K, V>,
    ) {
        let mut guard = RecordGuard::new();
        for _ in 0..first {
            guard.advance();
        }
        let mut records = records.iter();
        loop {
            let mut missed = None;
            // Separate slices: a write to a value cannot move the slices.
            let direct = self.index.direct.as_slice();
            let values = self.values.as_mut_slice();
            for record in records.by_ref() {
                let key = key(record);
                let found = find(direct, &self.index, &key);
                let found = found.and_then(|slot| Some((slot, values.get_mut(slot as usize)?)));
                let Some((slot, value)) = found else {
                    missed = Some((key, record));
                    break;
                };
                watch.changes(slot, &key, value);
                update(value, record);
                guard.advance();
            }
            let Some((key, record)) = missed else { return };
            let slot = self.insert(key.into_owned(), create());
            watch.inserted(slot);
            update(&mut self.values[slot as usize], record);
            guard.advance();
        }
    }

    /// Removes all values in slot order. The caller must then [clear](Self::clear) the table.
    pub fn drain_values(&mut self) -> std::vec::Drain<'_, V> {
        self.values.drain(..)
    }

    /// Removes the key at `slot`. Its value remains until the slot is reused.
    pub fn remove(&mut self, slot: u32) {
        self.index.remove(slot);
    }

    /// Removes all keys and values and retains memory for about as many.
    pub fn clear(&mut self) {
        self.index.clear();
        self.values.clear();
    }

    fn insert(&mut self, key: K, value: V) -> u32 {
        let slot = self.index.insert(key);
        match self.values.get_mut(slot as usize) {
            Some(place) => *place = value,
            None => self.values.push(value),
        }
        slot
    }
}

/// A listener for changes of a table's values. `()` ignores them.
pub trait ChangeListener<K, V> {
    /// Called before the value at `slot` changes.
    fn changes(&mut self, slot: u32, key: &K, value: &V);

    /// Called after a key was inserted at `slot`.
    fn inserted(&mut self, slot: u32);
}

impl<K, V> ChangeListener<K, V> for () {
    #[inline]
    fn changes(&mut self, _: u32, _: &K, _: &V) {}

    #[inline]
    fn inserted(&mut self, _: u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Applies `keys` to an index and to a map, and compares them.
    fn agrees_with_a_map<K: Key + std::fmt::Debug>(steps: &[(K, bool)]) {
        let mut table: KeyTable<K, usize> = KeyTable::default();
        let mut map: HashMap<K, usize> = HashMap::new();
        for (step, (key, remove)) in steps.iter().enumerate() {
            if *remove {
                if let Some(slot) = table.index().find(key) {
                    table.remove(slot);
                }
                map.remove(key);
            } else {
                let (_, value) = table.get_or_insert(Cow::Borrowed(key), || step);
                assert_eq!(value, map.entry(key.clone()).or_insert(step));
            }
            assert_eq!(table.len(), map.len());
        }
        for (key, _) in steps {
            assert_eq!(table.get(key), map.get(key), "{key:?}");
        }
        table.clear();
        assert!(table.is_empty());
        assert!(steps.iter().all(|(key, _)| table.get(key).is_none()));
        for (key, _) in steps {
            table.get_or_insert(Cow::Borrowed(key), || 0);
            assert_eq!(table.get(key), Some(&0));
        }
    }

    proptest! {
        #[test]
        fn a_table_behaves_as_a_map_for_numbers(
            steps in prop::collection::vec(
                (prop_oneof![0u64..50, 4_000u64..20_000, any::<u64>()], prop::bool::weighted(0.2)), 0..2_000
            )
        ) {
            agrees_with_a_map(&steps);
        }

        #[test]
        fn a_table_behaves_as_a_map_for_strings(
            steps in prop::collection::vec(("[ab]{0,4}", prop::bool::weighted(0.3)), 0..200)
        ) {
            agrees_with_a_map(&steps);
        }
    }

    #[test]
    fn keys_move_to_the_array_as_the_table_grows_and_are_found_all_along() {
        let mut index = KeyIndex::default();
        for key in (0..20_000u64).rev() {
            index.insert(key);
        }
        assert!(index.hashed.is_empty() && index.direct.len() == 32_768);
        assert!((0..20_000).all(|key| index.find(&key) == Some(19_999 - key as u32)));
    }

    #[test]
    fn a_few_great_numbers_take_little_memory() {
        let mut index = KeyIndex::default();
        for key in 0..100u64 {
            index.insert(key * 1_000_000);
        }
        assert!(index.direct.len() <= DIRECT_ALWAYS as usize);
        assert_eq!(index.find(&99_000_000), Some(99));
    }

    #[test]
    fn the_only_key_of_an_ungrouped_stream_has_slot_zero() {
        let mut table: KeyTable<(), u64> = KeyTable::default();
        table.update_each(
            &[1u64, 2, 3],
            0,
            |_| Cow::Owned(()),
            || 0,
            |sum, n| *sum += n,
        );
        assert_eq!(table.values(), [6]);
    }

    #[test]
    fn a_panic_is_laid_to_the_record_at_hand() {
        let mut table: KeyTable<u64, u64> = KeyTable::default();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let update = |_: &mut u64, n: &u64| assert!(*n != 9, "nine");
            table.update_each(&[1u64, 1, 9, 2], 10, |n| Cow::Owned(*n), || 0, update);
        }));
        assert!(outcome.is_err());
        assert_eq!(ardea_core::take_failed_index(), Some(12));
    }
}
