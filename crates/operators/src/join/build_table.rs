//! The build side of a hash join.

use std::borrow::Cow;
use std::fmt;
use std::mem;
use std::sync::Arc;

use ardea_core::{
    Epoch, Instance, Key, PartitionId, Progress, RestoredEntry, Result, SnapshotRequest,
    SnapshotWriter, StateChunk, StateCodec, StateShape,
};

use ardea_state::{StateTable, ValueReader, put_part};

/// The name of the checkpointed state.
pub(super) const TABLE: &str = "table";

/// A multimap from each key to its values in the order of insertion.
///
/// A key with one value, the usual case, needs no memory beyond its slot in the table. Insertion
/// and lookup take constant time.
///
/// ```
/// use ardea_operators::BuildTable;
///
/// let mut planes = BuildTable::default();
/// planes.insert("UA", "B737");
/// planes.insert("UA", "A320");
/// assert_eq!(planes.get(&"UA"), ["B737", "A320"]);
/// assert!(planes.get(&"XX").is_empty());
/// ```
pub struct BuildTable<K, V> {
    keys: StateTable<K, Values<V>>,
}

/// The values of a key.
enum Values<V> {
    One([V; 1]),
    Many(Vec<V>),
}

impl<V> Values<V> {
    #[inline]
    fn as_slice(&self) -> &[V] {
        match self {
            Values::One(value) => value,
            Values::Many(values) => values,
        }
    }

    fn push(&mut self, value: V) {
        *self = match mem::take(self) {
            Values::Many(values) if values.is_empty() => Values::One([value]),
            Values::Many(mut values) => {
                values.push(value);
                Values::Many(values)
            }
            Values::One([first]) => Values::Many(vec![first, value]),
        };
    }
}

impl<V> Default for Values<V> {
    /// Returns an empty list.
    fn default() -> Self {
        Values::Many(Vec::new())
    }
}

impl<K, V> Default for BuildTable<K, V> {
    fn default() -> Self {
        BuildTable {
            keys: StateTable::default(),
        }
    }
}

impl<K: Key, V> BuildTable<K, V> {
    /// Appends a value to the values of `key`.
    pub fn insert(&mut self, key: K, value: V) {
        self.insert_kept(key, value, None);
    }

    /// Works like [`insert`](Self::insert) while a snapshot of the table may be in progress.
    #[inline]
    pub(super) fn insert_kept(&mut self, key: K, value: V, kept: Option<&TableCodec<V>>) {
        let slot = self.keys.slot_or_insert(Cow::Owned(key), Values::default);
        self.keys
            .touch(slot, |chunk, key, values| write(kept, chunk, key, values));
        if let Some((_, values)) = self.keys.get_mut(slot) {
            values.push(value);
        }
    }

    /// Returns the values of `key`, or an empty slice.
    #[inline]
    pub fn get(&self, key: &K) -> &[V] {
        let slot = self.keys.find(key);
        let values = slot.and_then(|slot| self.keys.get(slot));
        values.map_or(&[], Values::as_slice)
    }

    /// Returns the values of each key, in the order of the keys' first insertion.
    pub fn values(&self) -> impl Iterator<Item = &[V]> {
        let slots = 0..u32::try_from(self.keys.slots()).unwrap_or(u32::MAX);
        slots.filter_map(|slot| self.keys.get(slot).map(Values::as_slice))
    }

    /// The number of distinct keys.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Starts to track changes for snapshots.
    pub(super) fn keep_track(&mut self) {
        self.keys.keep_track();
    }

    /// Captures the current contents for a snapshot.
    pub(super) fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.keys.take_snapshot(snapshot)
    }

    /// Writes the next part of the snapshot. A table without changes since the last commit writes
    /// nothing.
    pub(super) fn write_snapshot(
        &mut self,
        writer: &mut SnapshotWriter<'_>,
        kept: Option<&TableCodec<V>>,
    ) -> Result<Progress> {
        self.keys.write_snapshot(writer, |chunk, key, _, values| {
            write(kept, chunk, key, values)
        })
    }

    /// Handles the commit of `epoch`: its changes are not written again.
    pub(super) fn commit(&mut self, epoch: Epoch) -> Result<Progress> {
        self.keys.commit(epoch)
    }

    /// Handles the abort of `epoch`, whose snapshot is void.
    pub(super) fn abort(&mut self, epoch: Epoch) -> Progress {
        self.keys.abort(epoch)
    }

    /// Restores the values of a key, which `key_of` computes from a value.
    pub(super) fn restore(
        &mut self,
        entry: &RestoredEntry<'_>,
        kept: &TableCodec<V>,
        key_of: impl Fn(&V) -> K,
    ) -> Result<()> {
        let mut rest = ValueReader::of(entry.value);
        let first = kept.values.get(rest.part()?)?;
        let key = key_of(&first);
        let mut values = Values::One([first]);
        while !rest.is_empty() {
            values.push(kept.values.get(rest.part()?)?);
        }
        self.keys.restore(key, values).map(drop)
    }
}

/// Appends the entry of a key, if this instance writes that key.
fn write<K: Key, V>(
    kept: Option<&TableCodec<V>>,
    chunk: &mut StateChunk,
    key: &K,
    values: &Values<V>,
) -> Result<()> {
    match kept {
        Some(kept) => kept.write(chunk, key, values),
        None => Ok(()),
    }
}

/// The serializer of a checkpointed table, and the distribution of the table over instances.
///
/// The values of a key are one entry under its canonical bytes, each preceded by its length in four
/// bytes. If all instances hold the whole table, each writes the keys of the partitions that it
/// owns. Those entries belong to no partition, so that every instance restores all of them.
pub(super) struct TableCodec<V> {
    values: Arc<dyn StateCodec<V>>,
    instance: Instance,
    is_keyed: bool,
}

impl<V> TableCodec<V> {
    pub(super) fn new(values: Arc<dyn StateCodec<V>>) -> Self {
        TableCodec {
            values,
            instance: Instance::ONLY,
            is_keyed: false,
        }
    }

    /// Sets the instance, and whether it holds only the keys that it owns.
    pub(super) fn set(&mut self, instance: Instance, is_keyed: bool) {
        self.instance = instance;
        self.is_keyed = is_keyed;
    }

    /// Returns the shape of the state.
    pub(super) fn shape(&self) -> StateShape {
        StateShape::of_values(TABLE, None, self.values.schema())
    }

    fn write<K: Key>(&self, chunk: &mut StateChunk, key: &K, values: &Values<V>) -> Result<()> {
        let partition = PartitionId::of(key);
        if !self.is_keyed && partition.owner(self.instance.parallelism) != self.instance.index {
            return Ok(());
        }
        let canonical = |out: &mut Vec<u8>| {
            key.write_to(out);
            Ok(())
        };
        let partition = self.is_keyed.then_some(partition);
        chunk.write(TABLE, partition, canonical, |out| {
            let mut values = values.as_slice().iter();
            values.try_for_each(|value| put_part(out, |out| self.values.put(value, out)))
        })
    }
}

impl<K: Key, V> fmt::Debug for BuildTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildTable({} keys)", self.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn it_is_a_multi_map(entries in prop::collection::vec((any::<i8>(), any::<u16>()), 0..200)) {
            let mut table = BuildTable::default();
            let mut model: HashMap<i8, Vec<u16>> = HashMap::new();
            for &(key, value) in &entries {
                table.insert(key, value);
                model.entry(key).or_default().push(value);
            }
            prop_assert_eq!(table.keys(), model.len());
            prop_assert_eq!(table.values().map(<[u16]>::len).sum::<usize>(), entries.len());
            for key in i8::MIN..=i8::MAX {
                prop_assert_eq!(table.get(&key), model.get(&key).map_or(&[][..], |values| values));
            }
        }
    }
}
