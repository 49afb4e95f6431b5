//! Table of items with consecutive numbers, which are removed in any order.

use std::collections::VecDeque;

use slab::Slab;

/// Marks a number without an item.
const GONE: u32 = u32::MAX;

/// Items by number; numbers are consecutive.
///
/// Items are stored in a slab whose slots are reused, so memory stays compact and in the cache.
/// Insertion, lookup and removal take constant time.
#[derive(Clone, Debug)]
pub struct SequenceSlab<T> {
    /// The next number.
    next: u64,
    /// Slots of the items, from the lowest number present to the last assigned.
    places: VecDeque<u32>,
    held: Slab<T>,
}

impl<T> Default for SequenceSlab<T> {
    fn default() -> Self {
        SequenceSlab {
            next: 1,
            places: VecDeque::new(),
            held: Slab::new(),
        }
    }
}

impl<T> SequenceSlab<T> {
    /// Returns the number of the next item; the first is 1.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number below which there are no items.
    pub fn floor(&self) -> u64 {
        self.next - self.places.len() as u64
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Inserts an item and returns its number.
    pub fn enter(&mut self, what: T) -> u64 {
        let number = self.next;
        self.next += 1;
        // Memory is exhausted long before the index exceeds `u32`.
        self.places.push_back(self.held.insert(what) as u32);
        number
    }

    fn place(&self, number: u64) -> Option<usize> {
        let at = number.checked_sub(self.floor())?;
        let place = *self.places.get(usize::try_from(at).ok()?)?;
        (place != GONE).then_some(place as usize)
    }

    /// Returns the item with this number.
    pub fn get(&self, number: u64) -> Option<&T> {
        self.held.get(self.place(number)?)
    }

    /// Returns the item with this number for modification.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.place(number)?;
        self.held.get_mut(place)
    }

    /// Removes the item with this number.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let place = self.place(number)?;
        let at = (number - self.floor()) as usize;
        self.places[at] = GONE;
        while self.places.front() == Some(&GONE) {
            self.places.pop_front();
        }
        if self.places.is_empty() {
            // Restarts at the front of the buffer, which is in the cache.
            self.places.clear();
        }
        self.held.try_remove(place)
    }

    /// Returns all items in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let numbered = (self.floor()..).zip(&self.places);
        numbered.filter_map(|(number, place)| Some((number, self.held.get(*place as usize)?)))
    }

    /// Removes all items.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.places.clear();
        self.held.drain()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_holds_what_an_ordinary_map_holds(steps in prop::collection::vec((any::<bool>(), 0_u64..20), 0..300)) {
            let (mut roll, mut model) = (SequenceSlab::default(), BTreeMap::new());
            for (enters, back) in steps {
                if enters {
                    let number = roll.enter(back);
                    prop_assert_eq!(number + 1, roll.next());
                    model.insert(number, back);
                } else {
                    let number = roll.next().saturating_sub(back);
                    prop_assert_eq!(roll.get(number), model.get(&number));
                    prop_assert_eq!(roll.get_mut(number), model.get_mut(&number));
                    prop_assert_eq!(roll.remove(number), model.remove(&number));
                }
                let lowest = model.keys().next().copied();
                prop_assert_eq!(roll.is_empty(), model.is_empty());
                prop_assert_eq!(roll.floor(), lowest.unwrap_or(roll.next()));
                prop_assert!(roll.iter().eq(model.iter().map(|(number, what)| (*number, what))));
            }
            let mut rest: Vec<_> = roll.drain().collect();
            rest.sort_unstable();
            let mut known: Vec<_> = model.into_values().collect();
            known.sort_unstable();
            prop_assert_eq!(rest, known);
            prop_assert_eq!(roll.floor(), roll.next());
        }
    }
}
