//! Something for each key, at a place that timers can name.

use std::fmt;

use ardea_core::Key;

use crate::keyed_table::KeyIndex;

/// One state a key, at the key's slot, which stays until the key is removed; then both state and slot are free.
///
/// Nothing depends on the order of a hash table, so that equal inputs give equal outputs.
pub(crate) struct KeyedStates<K, S> {
    index: KeyIndex<K>,
    /// By slot; `None` where the slot is free.
    states: Vec<Option<S>>,
}

impl<K, S> Default for KeyedStates<K, S> {
    fn default() -> Self {
        KeyedStates {
            index: KeyIndex::default(),
            states: Vec::new(),
        }
    }
}

impl<K: Key, S> KeyedStates<K, S> {
    /// The slot of `key`, with the state that `create` makes if the key is new.
    #[inline]
    pub(crate) fn slot_or_insert(&mut self, key: K, create: impl FnOnce() -> S) -> u32 {
        if let Some(slot) = self.index.find(&key) {
            return slot;
        }
        let state = create();
        let slot = self.index.insert(key);
        self.states.resize_with(self.index.slots(), || None);
        self.states[slot as usize] = Some(state);
        slot
    }

    /// The key and state of a slot, if it is in use.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<(&K, &mut S)> {
        let state = self.states.get_mut(slot as usize)?.as_mut()?;
        Some((self.index.key(slot), state))
    }

    /// Forgets the key of a slot and returns its state.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<S> {
        let state = self.states.get_mut(slot as usize)?.take()?;
        self.index.remove(slot);
        Some(state)
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }
}

impl<K: Key, S> fmt::Debug for KeyedStates<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedStates({} keys)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn it_is_a_map_whose_slots_stay(steps in prop::collection::vec((0u8..12, any::<bool>()), 0..300)) {
            let mut states = KeyedStates::<u8, u32>::default();
            let mut model: HashMap<u8, (u32, u32)> = HashMap::new();
            for (turn, (key, remove)) in steps.into_iter().enumerate() {
                let turn = turn as u32;
                let slot = states.slot_or_insert(key, || turn);
                let known = *model.entry(key).or_insert((slot, turn));
                prop_assert_eq!(slot, known.0);
                prop_assert_eq!(states.get_mut(slot), Some((&key, &mut known.1.clone())));
                if remove {
                    model.remove(&key);
                    prop_assert_eq!(states.remove(slot), Some(known.1));
                    prop_assert_eq!(states.get_mut(slot), None);
                }
                prop_assert_eq!(states.len(), model.len());
            }
        }
    }
}
