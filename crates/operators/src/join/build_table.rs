//! The table side of a hash join.

use std::borrow::Cow;
use std::fmt;
use std::mem;
use std::sync::Arc;

use ardea_core::{
    Cut, CutWriter, Epoch, Instance, Key, PartitionId, Progress, RestoredEntry, Result, StateChunk,
    StateCodec, StateShape,
};

use crate::keyed::{KeyedStates, Rest, put_part};

/// The name of the state.
pub(super) const TABLE: &str = "table";

/// All values of each key, in the order in which they were inserted.
///
/// A key with one value, the usual case, needs no memory beyond its place in the table. Insertion and look-up are constant
/// time.
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
    keys: KeyedStates<K, Values<V>>,
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
    /// None yet.
    fn default() -> Self {
        Values::Many(Vec::new())
    }
}

impl<K, V> Default for BuildTable<K, V> {
    fn default() -> Self {
        BuildTable {
            keys: KeyedStates::default(),
        }
    }
}

impl<K: Key, V> BuildTable<K, V> {
    /// Adds a value to those of `key`.
    pub fn insert(&mut self, key: K, value: V) {
        self.insert_kept(key, value, None);
    }

    /// As [`insert`](Self::insert), where the table may be in the middle of being written.
    #[inline]
    pub(super) fn insert_kept(&mut self, key: K, value: V, kept: Option<&KeptTable<V>>) {
        let slot = self.keys.slot_or_insert(Cow::Owned(key), Values::default);
        self.keys
            .touch(slot, |chunk, key, values| write(kept, chunk, key, values));
        if let Some((_, values)) = self.keys.get_mut(slot) {
            values.push(value);
        }
    }

    /// The values of `key`; empty if there are none.
    #[inline]
    pub fn get(&self, key: &K) -> &[V] {
        let slot = self.keys.find(key);
        let values = slot.and_then(|slot| self.keys.get(slot));
        values.map_or(&[], Values::as_slice)
    }

    /// The number of different keys.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// From now on cuts will be taken.
    pub(super) fn keep_track(&mut self) {
        self.keys.keep_track();
    }

    /// What is there now belongs to this cut.
    pub(super) fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.keys.take_cut(cut)
    }

    /// Writes on at the cut. A table that has not changed since the last commit has nothing to write.
    pub(super) fn write_cut(
        &mut self,
        writer: &mut CutWriter<'_>,
        kept: Option<&KeptTable<V>>,
    ) -> Result<Progress> {
        self.keys.write_cut(writer, |chunk, key, _, values| {
            write(kept, chunk, key, values)
        })
    }

    /// An epoch is committed.
    pub(super) fn commit(&mut self, epoch: Epoch) -> Result<Progress> {
        self.keys.commit(epoch)
    }

    /// An epoch is given up.
    pub(super) fn give_up(&mut self, epoch: Epoch) -> Progress {
        self.keys.give_up(epoch)
    }

    /// The values of a key come back; `key_of` says whose they are.
    pub(super) fn restore(
        &mut self,
        entry: &RestoredEntry<'_>,
        kept: &KeptTable<V>,
        key_of: impl Fn(&V) -> K,
    ) -> Result<()> {
        let mut rest = Rest::of(entry.value);
        let first = kept.values.get(rest.part()?)?;
        let key = key_of(&first);
        let mut values = Values::One([first]);
        while !rest.is_empty() {
            values.push(kept.values.get(rest.part()?)?);
        }
        self.keys.restore(key, values).map(drop)
    }
}

/// Appends the entry of a key, if that is for this instance to write.
fn write<K: Key, V>(
    kept: Option<&KeptTable<V>>,
    chunk: &mut StateChunk,
    key: &K,
    values: &Values<V>,
) -> Result<()> {
    match kept {
        Some(kept) => kept.write(chunk, key, values),
        None => Ok(()),
    }
}

/// How a table is written that has to survive its instance, and whose instances have what of it.
///
/// The values of a key are one entry under its canonical bytes, each behind its length in four bytes. Of a table that all instances have
/// alike each writes the keys whose partitions it owns, and the entries belong to no partition, so that all get all of it back.
pub(super) struct KeptTable<V> {
    values: Arc<dyn StateCodec<V>>,
    instance: Instance,
    is_keyed: bool,
}

impl<V> KeptTable<V> {
    pub(super) fn new(values: Arc<dyn StateCodec<V>>) -> Self {
        KeptTable {
            values,
            instance: Instance::ONLY,
            is_keyed: false,
        }
    }

    /// Which instance has it, and whether that has only the keys that it owns.
    pub(super) fn set(&mut self, instance: Instance, is_keyed: bool) {
        self.instance = instance;
        self.is_keyed = is_keyed;
    }

    /// What the state looks like.
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
            for (key, value) in entries {
                table.insert(key, value);
                model.entry(key).or_default().push(value);
            }
            prop_assert_eq!(table.keys(), model.len());
            for key in i8::MIN..=i8::MAX {
                prop_assert_eq!(table.get(&key), model.get(&key).map_or(&[][..], |values| values));
            }
        }
    }
}
