//! The table side of a hash join.

use std::fmt;
use std::mem;

use ardea_core::Key;

use crate::keyed_table::KeyIndex;

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
    index: KeyIndex<K>,
    /// By slot.
    values: Vec<Values<V>>,
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
        let mut values = match mem::replace(self, Values::Many(Vec::new())) {
            Values::One(first) => Vec::from(first),
            Values::Many(values) => values,
        };
        values.push(value);
        *self = Values::Many(values);
    }
}

impl<K, V> Default for BuildTable<K, V> {
    fn default() -> Self {
        BuildTable {
            index: KeyIndex::default(),
            values: Vec::new(),
        }
    }
}

impl<K: Key, V> BuildTable<K, V> {
    /// Adds a value to those of `key`.
    pub fn insert(&mut self, key: K, value: V) {
        match self.index.find(&key) {
            Some(slot) => self.values[slot as usize].push(value),
            None => {
                // No key is ever removed, so that slots are given in order.
                self.index.insert(key);
                self.values.push(Values::One([value]));
            }
        }
    }

    /// The values of `key`; empty if there are none.
    #[inline]
    pub fn get(&self, key: &K) -> &[V] {
        self.index
            .find(key)
            .map_or(&[], |slot| self.values[slot as usize].as_slice())
    }

    /// The number of different keys.
    pub fn keys(&self) -> usize {
        self.index.len()
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
