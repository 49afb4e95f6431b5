//! An order of keys that does not depend on the history of a table.

use ardea_core::Key;

use crate::KeyIndex;

/// Slots in the order of the hashes of their keys, which are the same in every process.
///
/// The slots of a restored table differ from those of its predecessor. A step that emits results in
/// this order repeats the output of its predecessor.
#[derive(Debug, Default)]
pub(crate) struct KeyOrder {
    slots: Vec<(u64, u32)>,
}

impl KeyOrder {
    /// Puts `slots` in order.
    pub(crate) fn arrange<K: Key>(
        &mut self,
        index: &KeyIndex<K>,
        slots: impl Iterator<Item = u32>,
    ) {
        self.slots.clear();
        let hashed = slots.map(|slot| (index.key(slot).key_hash(), slot));
        self.slots.extend(hashed);
        self.slots.sort_unstable();
    }

    /// Returns the number of slots.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns up to `most` slots from the position `first` on.
    pub(crate) fn from(&self, first: usize, most: usize) -> impl Iterator<Item = usize> {
        let slots = self.slots.iter().skip(first).take(most);
        slots.map(|(_, slot)| *slot as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_does_not_depend_on_the_order_of_arrival() {
        let keys_in_order = |keys: &mut dyn Iterator<Item = u64>| {
            let mut index = KeyIndex::default();
            for key in keys {
                index.insert(key);
            }
            let mut order = KeyOrder::default();
            order.arrange(&index, 0..index.slots() as u32);
            let slots = order.from(0, usize::MAX);
            slots.map(|slot| index.keys()[slot]).collect::<Vec<_>>()
        };
        let forwards = keys_in_order(&mut (0..1000));
        assert_eq!(forwards, keys_in_order(&mut (0..1000).rev()));
        assert_eq!(forwards.len(), 1000);
    }
}
