//! A map from words to counts that is asked for many words at a time.
//!
//! Counting words one by one mostly waits for memory: the table is larger than the caches, and each look-up starts when the one before has
//! ended. Asked for a batch, the table first works out all places, then touches them all, so that the waits overlap, and then counts.
//!
//! A word of up to 16 bytes lies in its slot, as the first and the last eight bytes, which may overlap, and its length; a longer one lies
//! beside the table. A slot is half a cache line.

/// How many words are looked up at a time: their slots fit in the first cache.
const BLOCK: usize = 256;

/// The longest word that lies in its slot.
const SHORT: usize = 16;

/// What a word is found by: for a short word it is the word itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Print {
    first: u64,
    last: u64,
    length: u32,
}

/// A word and its count; empty if the count is zero.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct Slot {
    print: Print,
    /// Where a long word lies.
    long: u32,
    count: u64,
}

/// Counts words.
#[derive(Debug)]
pub(crate) struct WordCounts {
    slots: Vec<Slot>,
    words: usize,
    long: Vec<Box<[u8]>>,
    block: Vec<(Print, usize)>,
    /// Where touching leads, so that it is not optimised away.
    touched: u64,
}

impl Default for WordCounts {
    fn default() -> Self {
        WordCounts {
            slots: vec![Slot::default(); 1024],
            words: 0,
            long: Vec::new(),
            block: Vec::with_capacity(BLOCK),
            touched: 0,
        }
    }
}

impl WordCounts {
    /// Counts each of these words once more.
    #[inline]
    pub(crate) fn add_all<'a>(&mut self, words: impl ExactSizeIterator<Item = &'a [u8]> + Clone) {
        let mut rest = words;
        while rest.len() > 0 {
            let block = rest.clone().take(BLOCK);
            self.add_block(block.clone());
            rest.nth(block.len() - 1);
        }
    }

    #[inline]
    fn add_block<'a>(&mut self, words: impl ExactSizeIterator<Item = &'a [u8]> + Clone) {
        self.reserve(words.len());
        let mask = self.slots.len() - 1;
        self.block.clear();
        self.block.extend(words.clone().map(|word| {
            let print = Print::of(word);
            (print, print.hash() as usize & mask)
        }));
        let counts = self.block.iter().map(|(_, home)| self.slots[*home].count);
        self.touched = counts.fold(self.touched, u64::wrapping_add);
        let block = std::mem::take(&mut self.block);
        for (word, (print, home)) in words.zip(&block) {
            self.add(word, *print, *home);
        }
        self.block = block;
    }

    #[inline]
    fn add(&mut self, word: &[u8], print: Print, home: usize) {
        let mask = self.slots.len() - 1;
        let mut at = home;
        loop {
            let slot = &mut self.slots[at & mask];
            if slot.count == 0 {
                *slot = Slot {
                    print,
                    long: self.long.len() as u32,
                    count: 1,
                };
                self.words += 1;
                if word.len() > SHORT {
                    self.long.push(word.into());
                }
                return;
            }
            if slot.print == print
                && (word.len() <= SHORT || *self.long[slot.long as usize] == *word)
            {
                slot.count += 1;
                return;
            }
            at += 1;
        }
    }

    /// Makes room for so many words more, and keeps the table at most three quarters full.
    fn reserve(&mut self, more: usize) {
        if (self.words + more) * 4 <= self.slots.len() * 3 {
            return;
        }
        let larger = vec![Slot::default(); ((self.words + more) * 2).next_power_of_two()];
        let mask = larger.len() - 1;
        for slot in std::mem::replace(&mut self.slots, larger) {
            if slot.count > 0 {
                let mut at = slot.print.hash() as usize;
                while self.slots[at & mask].count > 0 {
                    at += 1;
                }
                self.slots[at & mask] = slot;
            }
        }
    }

    /// How many distinct words there are.
    pub(crate) fn distinct(&self) -> usize {
        self.words
    }

    /// The sum of all counts.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        self.slots.iter().map(|slot| slot.count).sum()
    }
}

impl Print {
    #[inline]
    fn of(word: &[u8]) -> Print {
        let length = word.len() as u32;
        let (first, last) = match word {
            long if long.len() > SHORT => long_print(long),
            [first, .., last] if word.len() < 4 => {
                let middle = word[word.len() / 2];
                (u64::from(*first) | u64::from(middle) << 8, u64::from(*last))
            }
            [only] => (u64::from(*only), 0),
            _ => match (word.first_chunk(), word.last_chunk()) {
                (Some(first), Some(last)) => {
                    (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
                }
                _ => match (word.first_chunk(), word.last_chunk()) {
                    (Some(first), Some(last)) => (
                        u64::from(u32::from_le_bytes(*first)),
                        u64::from(u32::from_le_bytes(*last)),
                    ),
                    _ => (0, 0),
                },
            },
        };
        Print {
            first,
            last,
            length,
        }
    }

    #[inline]
    fn hash(self) -> u64 {
        fold(
            self.first ^ 0x9e37_79b9_7f4a_7c15,
            self.last ^ 0xbf58_476d_1ce4_e5b9 ^ u64::from(self.length) << 56,
        )
    }
}

/// The hash of a long word, twice.
fn long_print(word: &[u8]) -> (u64, u64) {
    let words = word.chunks(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(bytes)
    });
    let hash = words.fold(1, |hash, word| fold(hash ^ word, 0x94d0_49bb_1331_11eb));
    (hash, hash)
}

/// Both halves of the product.
#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::wordcount::words::{Random, Words};

    #[test]
    fn it_counts_what_a_plain_map_counts() {
        let words = Words::generated(3000);
        let long = "verylong".repeat(5);
        let odd = [
            "",
            "a",
            "ab",
            "abc",
            "abcd",
            "abcdefgh",
            &long,
            "abcdefghabcdefgh",
            "ba",
        ];
        let mut random = Random(1);
        let (mut plain, mut counts) = (HashMap::<&str, u64>::new(), WordCounts::default());
        for _ in 0..200 {
            let batch: Vec<&str> = (0..random.below(700))
                .map(|_| match random.below(20) {
                    0 => odd[random.below(odd.len())],
                    _ => words.get(random.below(words.len())),
                })
                .collect();
            batch
                .iter()
                .for_each(|word| *plain.entry(word).or_default() += 1);
            counts.add_all(batch.iter().map(|word| word.as_bytes()));
        }
        assert_eq!(counts.distinct(), plain.len());
        assert_eq!(counts.total(), plain.values().sum::<u64>());
        let counted: HashMap<(Print, u32), u64> = counts
            .slots
            .iter()
            .filter(|slot| slot.count > 0)
            .map(|slot| ((slot.print, slot.long), slot.count))
            .map(|((print, long), count)| {
                ((print, if print.length > 16 { long } else { 0 }), count)
            })
            .collect();
        for (word, count) in plain {
            assert_eq!(
                counted.get(&(Print::of(word.as_bytes()), 0)),
                Some(&count),
                "{word}"
            );
        }
    }
}
