//! A map per key, written entry by entry.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use ardea_codec::StateValue;
use ardea_core::{
    Checkpointed, Epoch, InstanceContext, Key, KeyBytes, Progress, RestoredEntry, RestoredState,
    Result, SnapshotRequest, SnapshotWriter, StateShape,
};
use serde::{Deserialize, Serialize};

use crate::{KeyTable, KeyedState, NamedState};

/// The key of an entry of a map: the key of the map, and the name of the entry in it.
///
/// It belongs to the partition of the map's key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct EntryKey<K, N> {
    key: K,
    name: N,
}

impl<K: Key, N: Key> Key for EntryKey<K, N> {
    fn write(&self, bytes: &mut KeyBytes) {
        bytes.part(&self.key);
        bytes.part(&self.name);
    }

    fn key_hash(&self) -> u64 {
        self.key.key_hash()
    }
}

/// A state with a map per key, for maps that are large or grow: an increment contains the entries
/// that changed, not the whole map.
///
/// The entries of a key are in the order of their names. Cost: a hash per access, and an ordered
/// set of names per key.
///
/// ```
/// use ardea_state::MapState;
///
/// let mut pages: MapState<&str, &str, u32> = MapState::new("pages");
/// for (user, page) in [("ann", "/b"), ("bob", "/"), ("ann", "/a"), ("ann", "/b")] {
///     *pages.entry(&user, &page, || 0)? += 1;
/// }
/// assert_eq!(pages.iter(&"ann").collect::<Vec<_>>(), [(&"/a", &1), (&"/b", &2)]);
/// assert_eq!(pages.remove(&"ann", &"/b"), Some(2));
/// assert_eq!(pages.get(&"ann", &"/b"), None);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct MapState<K, N, V> {
    entries: KeyedState<EntryKey<K, N>, V>,
    /// The names of the entries of each key.
    names: KeyTable<K, BTreeSet<N>>,
}

impl<K: Key, N: Key + Ord, V> MapState<K, N, V> {
    /// Creates an empty state that is not checkpointed. The name identifies it in snapshots.
    pub fn new(name: &'static str) -> Self {
        MapState {
            entries: KeyedState::new(name),
            names: KeyTable::default(),
        }
    }

    /// Creates an empty state that is serialized by the default codecs of its types.
    pub fn checkpointed(name: &'static str) -> Self
    where
        K: StateValue,
        N: StateValue,
        V: StateValue,
    {
        MapState {
            entries: KeyedState::checkpointed(name),
            names: KeyTable::default(),
        }
    }

    /// Returns the value of an entry.
    pub fn get(&self, key: &K, name: &N) -> Option<&V> {
        self.entries.value(&entry_key(key, name))
    }

    /// Returns the value of an entry, prepared for a change. A new entry has the value `create()`.
    ///
    /// # Errors
    /// None at present: map entries stay in memory.
    pub fn entry(&mut self, key: &K, name: &N, create: impl FnOnce() -> V) -> Result<&mut V> {
        let MapState { entries, names } = self;
        let create = || {
            let (_, names) = names.get_or_insert(Cow::Borrowed(key), BTreeSet::new);
            names.insert(name.clone());
            create()
        };
        let (_, value) = entries.entry(Cow::Owned(entry_key(key, name)), create)?;
        Ok(value)
    }

    /// Sets the value of an entry.
    ///
    /// # Errors
    /// As [`entry`](Self::entry).
    pub fn insert(&mut self, key: &K, name: &N, value: V) -> Result<()> {
        match self.entries.find(&entry_key(key, name)) {
            Some(slot) => {
                if let Some((_, present)) = self.entries.update(slot) {
                    *present = value;
                }
                Ok(())
            }
            None => self.entry(key, name, || value).map(drop),
        }
    }

    /// Removes an entry, and returns its value.
    pub fn remove(&mut self, key: &K, name: &N) -> Option<V> {
        let slot = self.entries.find(&entry_key(key, name))?;
        let removed = self.entries.remove(slot);
        if let Some(of) = self.names.index().find(key)
            && let Some(names) = self.names.values_mut().get_mut(of as usize)
        {
            names.remove(name);
            if names.is_empty() {
                self.names.remove(of);
            }
        }
        removed
    }

    /// Removes all entries of a key.
    pub fn clear(&mut self, key: &K) {
        while let Some(name) = self.names.get(key).and_then(|names| names.first().cloned()) {
            self.remove(key, &name);
        }
    }

    /// Returns the entries of a key in the order of their names.
    pub fn iter<'a>(&'a self, key: &'a K) -> impl Iterator<Item = (&'a N, &'a V)> {
        let names = self.names.get(key).into_iter().flatten();
        names.filter_map(move |name| Some((name, self.get(key, name)?)))
    }

    /// Collects the names of restored entries.
    fn collect_names(&mut self) {
        for slot in 0..self.entries.slots() {
            if let Some(EntryKey { key, name }) = self.entries.key(slot) {
                let (_, names) = self.names.get_or_insert(Cow::Borrowed(key), BTreeSet::new);
                names.insert(name.clone());
            }
        }
    }

    /// Returns the last name of a key.
    pub(crate) fn last_name(&self, key: &K) -> Option<&N> {
        self.names.get(key)?.last()
    }

    /// Returns the number of entries of all keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if no key has an entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn entry_key<K: Key, N: Key>(key: &K, name: &N) -> EntryKey<K, N> {
    EntryKey {
        key: key.clone(),
        name: name.clone(),
    }
}

impl<K: Key, N: Key + Ord, V: Send + 'static> Checkpointed for MapState<K, N, V> {
    fn states(&mut self) -> Vec<StateShape> {
        self.entries.states()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.entries.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.entries.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.entries.restore(state)
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let is_taken = self.entries.take_over_state(memory);
        self.collect_names();
        is_taken
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        self.collect_names();
        self.entries.on_restored(epoch)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.entries.on_checkpoint_committed(epoch)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        self.entries.on_checkpoint_aborted(epoch)
    }
}

impl<K: Key, N: Key + Ord, V: Send + 'static> NamedState for MapState<K, N, V> {
    fn name(&self) -> &'static str {
        self.entries.state_name()
    }

    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        self.entries.open(context)
    }

    fn restore_entry(&mut self, entry: &RestoredEntry<'_>) -> Result<()> {
        self.entries.restore_entry(entry)
    }

    fn hand_over(&mut self) -> Box<dyn Any + Send> {
        self.names.clear();
        self.entries.hand_over()
    }
}

impl<K: Key, N: Key + Ord, V> fmt::Debug for MapState<K, N, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MapState({} entries)", self.len())
    }
}
