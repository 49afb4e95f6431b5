//! What is numbered one after the other as it comes, until it is taken out in any order.

use std::collections::VecDeque;

use slab::Slab;

/// Nothing is there under this number any more.
const GONE: u32 = u32::MAX;

/// Things by their numbers, which go up by one.
///
/// What is there at a time lies together however high the numbers are, in places that are used again at once: so it stays near the processor. Finding it, putting
/// it in and taking it out take no time that depends on how much there is.
#[derive(Clone, Debug)]
pub struct Roll<T> {
    /// The next number.
    next: u64,
    /// Where what has a number lies, from the lowest that is there to the last that was given.
    places: VecDeque<u32>,
    held: Slab<T>,
}

impl<T> Default for Roll<T> {
    fn default() -> Self {
        Roll {
            next: 1,
            places: VecDeque::new(),
            held: Slab::new(),
        }
    }
}

impl<T> Roll<T> {
    /// The number that the next one gets; the first is one.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Nothing is there below this number.
    pub fn floor(&self) -> u64 {
        self.next - self.places.len() as u64
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Puts one in; its number.
    pub fn enter(&mut self, what: T) -> u64 {
        let number = self.next;
        self.next += 1;
        // Memory ends long before such numbers do.
        self.places.push_back(self.held.insert(what) as u32);
        number
    }

    fn place(&self, number: u64) -> Option<usize> {
        let at = number.checked_sub(self.floor())?;
        let place = *self.places.get(usize::try_from(at).ok()?)?;
        (place != GONE).then_some(place as usize)
    }

    /// What is there under a number.
    pub fn get(&self, number: u64) -> Option<&T> {
        self.held.get(self.place(number)?)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.place(number)?;
        self.held.get_mut(place)
    }

    /// Takes out what is there under a number.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let place = self.place(number)?;
        let at = (number - self.floor()) as usize;
        self.places[at] = GONE;
        while self.places.front() == Some(&GONE) {
            self.places.pop_front();
        }
        if self.places.is_empty() {
            // From its front again, which is near.
            self.places.clear();
        }
        self.held.try_remove(place)
    }

    /// All that is there, in order of the numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let numbered = (self.floor()..).zip(&self.places);
        numbered.filter_map(|(number, place)| Some((number, self.held.get(*place as usize)?)))
    }

    /// Takes everything out.
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
            let (mut roll, mut model) = (Roll::default(), BTreeMap::new());
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
