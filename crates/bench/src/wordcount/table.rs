//! A map from words to counts with batched look-ups.
//!
//! Counting words one by one mostly waits for memory: the table is larger than the caches, and each
//! look-up starts after the previous one. For a batch, the table first computes all positions and
//! prefetches their memory, so that the waits overlap, and then counts. Prefetching overlaps more
//! waits than reading would: a read occupies the processor's reorder buffer until its data arrives.
//!
//! Three words and their counts share a cache line. A word of up to 16 bytes is stored in the line,
//! as its first and its last eight bytes, which may overlap, and its length. A longer word is
//! stored beside the table. A word whose line is full goes to the next line with room (linear
//! probing).

use prefetch_index::prefetch_index;

/// Words of a batch; their lines fit in the L1 cache.
const BLOCK: usize = 128;

/// The maximum length of a word stored in its line.
const SHORT: usize = 16;

/// Words in a line.
const SLOTS: usize = 3;

/// The tag of a word stored beside the table.
const LONG: u8 = u8::MAX;

/// The fingerprint of a word; a short word is stored in it completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Fingerprint {
    first: u64,
    last: u64,
    /// The length of a short word plus one, or [`LONG`]; zero if there is no word.
    tag: u8,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line {
    prints: [(u64, u64); SLOTS],
    counts: [u32; SLOTS],
    tags: [u8; SLOTS],
}

/// A look-up of a word.
#[derive(Clone, Copy, Debug, Default)]
struct Lookup<'a> {
    word: &'a [u8],
    print: Fingerprint,
    line: usize,
}

/// A hash table of words and their counts.
#[derive(Debug)]
pub(crate) struct WordCounts {
    /// The lines; their number is a power of two.
    lines: Vec<Line>,
    words: usize,
    long: Vec<Box<[u8]>>,
    /// The fingerprints of counters that have overflowed, once for each time.
    rounds: Vec<Fingerprint>,
    /// Indices of the words of a batch that need the slow path: long words, new words, and words
    /// not in their first line.
    late: Vec<usize>,
}

impl Default for WordCounts {
    fn default() -> Self {
        WordCounts {
            lines: vec![Line::default(); 512],
            words: 0,
            long: Vec::new(),
            rounds: Vec::new(),
            late: Vec::with_capacity(BLOCK),
        }
    }
}

impl WordCounts {
    /// Adds one to the count of each of these words.
    #[inline]
    pub(crate) fn add_all<'a>(&mut self, mut words: impl Iterator<Item = &'a [u8]>) {
        let mut block = [Lookup::default(); BLOCK];
        loop {
            self.reserve_block();
            let mask = self.lines.len() - 1;
            let mut found = 0;
            for (look, word) in block.iter_mut().zip(&mut words) {
                let print = Fingerprint::of(word);
                let line = print.hash() as usize & mask;
                prefetch_index(&self.lines, line);
                *look = Lookup { word, print, line };
                found += 1;
            }
            self.add_block(&block[..found]);
            if found < BLOCK {
                return;
            }
        }
    }

    fn add_block(&mut self, block: &[Lookup<'_>]) {
        let mut late = std::mem::take(&mut self.late);
        for (number, look) in block.iter().enumerate() {
            if !self.add_there(look) {
                prefetch_index(&self.lines, self.after(look.line));
                late.push(number);
            }
        }
        for number in late.drain(..) {
            self.add_somewhere(&block[number]);
        }
        self.late = late;
    }

    /// Counts a short word if it is in its first line and its counter does not overflow; returns
    /// true if it was counted.
    #[inline]
    fn add_there(&mut self, look: &Lookup<'_>) -> bool {
        let line = &mut self.lines[look.line];
        let is_at = [
            line.holds(0, look),
            line.holds(1, look),
            line.holds(2, look),
        ];
        // Branchless, since the slot can't be predicted.
        let slot = usize::from(is_at[1]) + 2 * usize::from(is_at[2]);
        let is_there = is_at[0] | is_at[1] | is_at[2];
        if is_there && line.counts[slot] < u32::MAX {
            line.counts[slot] += 1;
            return true;
        }
        false
    }

    /// Counts a word in whichever line it is, and inserts it if it is new.
    fn add_somewhere(&mut self, look: &Lookup<'_>) {
        let mut at = look.line;
        loop {
            let line = &mut self.lines[at];
            for slot in 0..SLOTS {
                let print = line.print(slot);
                if print == Fingerprint::default() {
                    line.set(slot, look.print.beside(self.long.len()), 1);
                    if look.print.tag == LONG {
                        self.long.push(look.word.into());
                    }
                    self.words += 1;
                    return;
                }
                let is_it = match look.print.tag {
                    LONG => {
                        let is_like_it = (print.first, print.tag) == (look.print.first, LONG);
                        is_like_it && *self.long[print.last as usize] == *look.word
                    }
                    _ => print == look.print,
                };
                if is_it {
                    let (count, has_gone_round) = line.counts[slot].overflowing_add(1);
                    line.counts[slot] = count;
                    if has_gone_round {
                        self.rounds.push(print);
                    }
                    return;
                }
            }
            at = self.after(at);
        }
    }

    /// Returns the index of the line after this one.
    #[inline]
    fn after(&self, line: usize) -> usize {
        (line + 1) & (self.lines.len() - 1)
    }

    /// Reserves room for the words of a batch, and keeps the table at most three quarters full.
    fn reserve_block(&mut self) {
        let most = self.lines.len() * SLOTS / 4 * 3;
        if self.words + BLOCK <= most {
            return;
        }
        let larger = vec![Line::default(); self.lines.len() * 2];
        let lines = std::mem::replace(&mut self.lines, larger);
        for line in lines {
            for slot in (0..SLOTS).filter(|slot| line.tags[*slot] > 0) {
                self.put(line.print(slot), line.counts[slot]);
            }
        }
    }

    /// Inserts a word that is not in the table.
    fn put(&mut self, print: Fingerprint, count: u32) {
        let mut at = print.hash() as usize & (self.lines.len() - 1);
        loop {
            let line = &mut self.lines[at];
            if let Some(slot) = (0..SLOTS).find(|slot| line.tags[*slot] == 0) {
                return line.set(slot, print, count);
            }
            at = self.after(at);
        }
    }

    pub(crate) fn distinct(&self) -> usize {
        self.words
    }
}

impl Line {
    /// Returns true if this slot has the short word of the look-up.
    #[inline]
    fn holds(&self, slot: usize, look: &Lookup<'_>) -> bool {
        let ((first, last), print) = (self.prints[slot], look.print);
        let differs = u64::from(self.tags[slot] ^ print.tag);
        (first ^ print.first) | (last ^ print.last) | differs == 0
    }

    #[inline]
    fn print(&self, slot: usize) -> Fingerprint {
        let (first, last) = self.prints[slot];
        Fingerprint {
            first,
            last,
            tag: self.tags[slot],
        }
    }

    fn set(&mut self, slot: usize, print: Fingerprint, count: u32) {
        self.prints[slot] = (print.first, print.last);
        self.tags[slot] = print.tag;
        self.counts[slot] = count;
    }
}

impl Fingerprint {
    /// The position of a long word during a look-up; no stored word has it.
    const NOWHERE: u64 = u64::MAX;

    #[inline]
    fn of(word: &[u8]) -> Fingerprint {
        let (first, last) = match word {
            long if long.len() > SHORT => {
                return Fingerprint {
                    first: long_hash(long),
                    last: Fingerprint::NOWHERE,
                    tag: LONG,
                };
            }
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
        Fingerprint {
            first,
            last,
            tag: word.len() as u8 + 1,
        }
    }

    /// Returns the fingerprint as stored: a long word refers to this position beside the table.
    fn beside(self, place: usize) -> Fingerprint {
        match self.tag {
            LONG => Fingerprint {
                last: place as u64,
                ..self
            },
            _ => self,
        }
    }

    #[inline]
    fn hash(self) -> u64 {
        let last = match self.tag {
            LONG => Fingerprint::NOWHERE,
            _ => self.last,
        };
        fold(
            self.first ^ 0x9e37_79b9_7f4a_7c15,
            last ^ 0xbf58_476d_1ce4_e5b9 ^ u64::from(self.tag) << 56,
        )
    }
}

fn long_hash(word: &[u8]) -> u64 {
    let words = word.chunks(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(bytes)
    });
    words.fold(1, |hash, word| fold(hash ^ word, 0x94d0_49bb_1331_11eb))
}

/// Returns the xor of both halves of the product.
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

    impl WordCounts {
        fn count(&self, word: &[u8]) -> u64 {
            let of = Fingerprint::of(word);
            let is_it = |print: &Fingerprint| match of.tag {
                LONG => print.tag == LONG && *self.long[print.last as usize] == *word,
                _ => *print == of,
            };
            let slots = self.lines.iter();
            let mut slots = slots.flat_map(|line| (0..SLOTS).map(move |slot| (line, slot)));
            let found = slots.find(|(line, slot)| is_it(&line.print(*slot)));
            let count = found.map_or(0, |(line, slot)| u64::from(line.counts[slot]));
            count + ((self.rounds.iter().filter(|print| is_it(print)).count() as u64) << 32)
        }

        fn total(&self) -> u64 {
            let counts = self.lines.iter().flat_map(|line| line.counts);
            counts.map(u64::from).sum::<u64>() + ((self.rounds.len() as u64) << 32)
        }
    }

    #[test]
    fn it_counts_what_a_plain_map_counts() {
        let words = Words::generated(3000);
        let long = "verylong".repeat(5);
        let longer = format!("{long}er");
        let odd = [
            "",
            "a",
            "ab",
            "abc",
            "abcd",
            "abcdefgh",
            &long,
            &longer,
            "abcdefghabcdefgh",
            "abcdefghabcdefghi",
            "ba",
            // Differ in their lengths only.
            "a\0",
            "\0",
            "aaaa",
            "aaaaa",
            "aaaaaaaa",
            "aaaaaaaaa",
            // Have the same hash.
            "xxxxxxxxxxxxxxxxx",
            "xxxxxxxxxxxxxxxxx\0",
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
        for (word, count) in plain {
            assert_eq!(counts.count(word.as_bytes()), count, "{word}");
        }
    }

    #[test]
    fn a_count_goes_on_where_a_line_has_no_more_room_for_it() {
        let mut counts = WordCounts::default();
        let long = "oftener".repeat(9);
        let words = || [&b"often"[..], long.as_bytes()].into_iter();
        counts.add_all(words());
        for line in &mut counts.lines {
            line.counts.iter_mut().for_each(|count| *count *= u32::MAX);
        }
        for more in 1..4 {
            counts.add_all(words());
            for word in words() {
                assert_eq!(counts.count(word), u64::from(u32::MAX) + more);
            }
        }
        assert_eq!((counts.distinct(), counts.total()), (2, (1 << 33) + 4));
    }
}
