//! A map from words to counts that is asked for many words at a time.
//!
//! Counting words one by one mostly waits for memory: the table is larger than the caches, and each look-up starts when the one before has
//! ended. Asked for a batch, the table first works out all places and has their memory fetched, so that the waits overlap, and then counts.
//! Fetching ahead overlaps more of them than reading would: a read keeps its place in the processor until its memory has come.
//!
//! Three words and their counts share a cache line. A word of up to 16 bytes lies there itself, as its first and its last eight bytes, which
//! may overlap, and its length; a longer one lies beside the table. A word whose line is full lies on the next that is not.

use prefetch_index::prefetch_index;

/// How many words are looked up at a time: their lines fit in the first cache.
const BLOCK: usize = 128;

/// The longest word that lies on its line.
const SHORT: usize = 16;

/// How many words lie on a line.
const SLOTS: usize = 3;

/// Instead of its length, of a word that lies beside the table.
const LONG: u8 = u8::MAX;

/// What a word is found by: a short word is wholly in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Print {
    first: u64,
    last: u64,
    /// The length of a short word and one, or [`LONG`]; zero is no word.
    tag: u8,
}

/// A cache line of the table.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line {
    prints: [(u64, u64); SLOTS],
    counts: [u32; SLOTS],
    tags: [u8; SLOTS],
}

/// A word that is looked up.
#[derive(Clone, Copy, Debug, Default)]
struct Look<'a> {
    word: &'a [u8],
    print: Print,
    line: usize,
}

/// Counts words.
#[derive(Debug)]
pub(crate) struct WordCounts {
    /// As many as a power of two.
    lines: Vec<Line>,
    words: usize,
    long: Vec<Box<[u8]>>,
    /// The prints of counts that have gone round, once for each time.
    rounds: Vec<Print>,
    /// Which of a block are not counted at once: what is long, new, or not on its first line.
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
    /// Counts each of these words once more.
    #[inline]
    pub(crate) fn add_all<'a>(&mut self, mut words: impl Iterator<Item = &'a [u8]>) {
        let mut block = [Look::default(); BLOCK];
        loop {
            self.reserve_block();
            let mask = self.lines.len() - 1;
            let mut found = 0;
            for (look, word) in block.iter_mut().zip(&mut words) {
                let print = Print::of(word);
                let line = print.hash() as usize & mask;
                prefetch_index(&self.lines, line);
                *look = Look { word, print, line };
                found += 1;
            }
            self.add_block(&block[..found]);
            if found < BLOCK {
                return;
            }
        }
    }

    fn add_block(&mut self, block: &[Look<'_>]) {
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

    /// Counts a short word if it lies on its first line, and its count has room; says whether it did.
    #[inline]
    fn add_there(&mut self, look: &Look<'_>) -> bool {
        let line = &mut self.lines[look.line];
        let is_at = [
            line.holds(0, look),
            line.holds(1, look),
            line.holds(2, look),
        ];
        // Without branches: which it is can't be foreseen.
        let slot = usize::from(is_at[1]) + 2 * usize::from(is_at[2]);
        let is_there = is_at[0] | is_at[1] | is_at[2];
        if is_there && line.counts[slot] < u32::MAX {
            line.counts[slot] += 1;
            return true;
        }
        false
    }

    /// Counts a word wherever it lies, and gives it a place if it has none.
    fn add_somewhere(&mut self, look: &Look<'_>) {
        let mut at = look.line;
        loop {
            let line = &mut self.lines[at];
            for slot in 0..SLOTS {
                let print = line.print(slot);
                if print == Print::default() {
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

    /// The line after this one.
    #[inline]
    fn after(&self, line: usize) -> usize {
        (line + 1) & (self.lines.len() - 1)
    }

    /// Makes room for the words of a block, and keeps the table at most three quarters full.
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

    /// Puts a word that is not there yet.
    fn put(&mut self, print: Print, count: u32) {
        let mut at = print.hash() as usize & (self.lines.len() - 1);
        loop {
            let line = &mut self.lines[at];
            if let Some(slot) = (0..SLOTS).find(|slot| line.tags[*slot] == 0) {
                return line.set(slot, print, count);
            }
            at = self.after(at);
        }
    }

    /// How many distinct words there are.
    pub(crate) fn distinct(&self) -> usize {
        self.words
    }
}

impl Line {
    /// Whether this slot has the short word that is looked for.
    #[inline]
    fn holds(&self, slot: usize, look: &Look<'_>) -> bool {
        let ((first, last), print) = (self.prints[slot], look.print);
        let differs = u64::from(self.tags[slot] ^ print.tag);
        (first ^ print.first) | (last ^ print.last) | differs == 0
    }

    #[inline]
    fn print(&self, slot: usize) -> Print {
        let (first, last) = self.prints[slot];
        Print {
            first,
            last,
            tag: self.tags[slot],
        }
    }

    fn set(&mut self, slot: usize, print: Print, count: u32) {
        self.prints[slot] = (print.first, print.last);
        self.tags[slot] = print.tag;
        self.counts[slot] = count;
    }
}

impl Print {
    /// A long word that is looked up: nowhere in particular, so that no line has it.
    const NOWHERE: u64 = u64::MAX;

    #[inline]
    fn of(word: &[u8]) -> Print {
        let (first, last) = match word {
            long if long.len() > SHORT => {
                return Print {
                    first: long_hash(long),
                    last: Print::NOWHERE,
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
        Print {
            first,
            last,
            tag: word.len() as u8 + 1,
        }
    }

    /// As it is kept: a long word at this place beside the table.
    fn beside(self, place: usize) -> Print {
        match self.tag {
            LONG => Print {
                last: place as u64,
                ..self
            },
            _ => self,
        }
    }

    #[inline]
    fn hash(self) -> u64 {
        let last = match self.tag {
            LONG => Print::NOWHERE,
            _ => self.last,
        };
        fold(
            self.first ^ 0x9e37_79b9_7f4a_7c15,
            last ^ 0xbf58_476d_1ce4_e5b9 ^ u64::from(self.tag) << 56,
        )
    }
}

/// The hash of a long word.
fn long_hash(word: &[u8]) -> u64 {
    let words = word.chunks(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(bytes)
    });
    words.fold(1, |hash, word| fold(hash ^ word, 0x94d0_49bb_1331_11eb))
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

    impl WordCounts {
        /// How often this word was counted.
        fn count(&self, word: &[u8]) -> u64 {
            let of = Print::of(word);
            let is_it = |print: &Print| match of.tag {
                LONG => print.tag == LONG && *self.long[print.last as usize] == *word,
                _ => *print == of,
            };
            let slots = self.lines.iter();
            let mut slots = slots.flat_map(|line| (0..SLOTS).map(move |slot| (line, slot)));
            let found = slots.find(|(line, slot)| is_it(&line.print(*slot)));
            let count = found.map_or(0, |(line, slot)| u64::from(line.counts[slot]));
            count + ((self.rounds.iter().filter(|print| is_it(print)).count() as u64) << 32)
        }

        /// The sum of all counts.
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
            // Told apart by their lengths only.
            "a\0",
            "\0",
            "aaaa",
            "aaaaa",
            "aaaaaaaa",
            "aaaaaaaaa",
            // Of one hash.
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
