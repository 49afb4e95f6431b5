//! The list of words: generated, the same from the same seed, or read from a file.

use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};
use prefetch_index::prefetch_index;

/// The seed of the generated words.
const SEED: u64 = 2017;

/// A list of words in one allocation: a cell for each word, followed by the words that do not fit
/// in their cells.
///
/// A cell has the word's length and the word, so that reading a short random word costs one cache
/// miss. For a longer word it has [`FAR`] and the word's position, and reading it costs a second
/// miss. All of it is valid UTF-8: a length is a character of one byte.
#[derive(Debug)]
pub(crate) struct Words {
    text: String,
    count: usize,
}

/// The bytes of a cell. Several fit on a cache line, and none crosses a line, since allocators
/// align large allocations.
const CELL: usize = 16;

/// The marker, in place of the length, of a word stored after the cells.
const FAR: u8 = 0x7f;

/// The number of seven-bit characters that encode a word's position, and its length: enough for 32
/// GiB of text.
const DIGITS: usize = 5;

impl Words {
    /// Returns the words of this file, or else `count` generated words.
    pub(crate) fn of(file: Option<&Path>, count: usize) -> Result<Words> {
        match file {
            Some(path) => Words::from_file(path),
            None => Ok(Words::generated(count)),
        }
    }

    /// Generates `count` distinct words of 3 to 16 lowercase letters.
    pub(crate) fn generated(count: usize) -> Words {
        let mut random = Random(SEED);
        let mut seen = HashSet::with_capacity(count);
        while seen.len() < count {
            let length = 3 + random.below(14);
            let letters = (0..length).map(|_| char::from(b'a' + random.below(26) as u8));
            seen.insert(letters.collect::<String>());
        }
        let mut words: Vec<String> = seen.into_iter().collect();
        words.sort_unstable();
        Words::from_iter(words.iter().map(String::as_str))
    }

    /// Reads a file with a word a line.
    pub(crate) fn from_file(path: &Path) -> Result<Words> {
        let fail = |error: Error| error.hint("name a text in UTF-8 with a word a line");
        let text = fs::read_to_string(path).map_err(|error| {
            let what = format!("the words of {} could not be read", path.display());
            fail(Error::new(ErrorCode::ReadFailed, what).because(error))
        })?;
        let words = Words::from_iter(text.lines().filter(|line| !line.is_empty()));
        if words.count == 0 {
            let what = format!("there is no word in {}", path.display());
            return Err(fail(Error::new(ErrorCode::InvalidConfig, what)));
        }
        Ok(words)
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> &str {
        &self.text[self.place(index)]
    }

    /// Returns the range of the word at `index` in the text.
    #[inline]
    fn place(&self, index: usize) -> Range<usize> {
        let start = index * CELL + 1;
        match self.text.as_bytes()[start - 1] {
            FAR => {
                let digits = &self.text.as_bytes()[start..start + 2 * DIGITS];
                let number = |digits: &[u8]| digits.iter().fold(0, number_and_digit);
                let start = number(&digits[..DIGITS]);
                start..start + number(&digits[DIGITS..])
            }
            length => start..start + usize::from(length),
        }
    }

    /// Prefetches the memory of this byte.
    #[inline]
    fn prefetch(&self, byte: usize) {
        prefetch_index(self.text.as_bytes(), byte);
    }
}

/// Appends a seven-bit digit to a number.
fn number_and_digit(number: usize, digit: &u8) -> usize {
    number << 7 | usize::from(*digit)
}

/// Writes a number in digits of seven bits.
fn push_digits(text: &mut String, number: usize) {
    let digits = (0..DIGITS).rev().map(|digit| number >> (7 * digit) & 0x7f);
    text.extend(digits.map(|digit| char::from(digit as u8)));
}

/// Random words of a list, drawn in batches so that cache misses overlap.
#[derive(Debug)]
pub(crate) struct Draws {
    random: Random,
    /// The indices of the next batch, whose cells are being prefetched.
    indices: Vec<usize>,
    /// The remaining words of this batch.
    places: Vec<Range<usize>>,
}

impl Draws {
    /// The size of a batch; the cells of two batches fit in the L1 cache.
    const BLOCK: usize = 64;

    pub(crate) fn new(seed: u64) -> Self {
        Draws {
            random: Random(seed),
            indices: Vec::with_capacity(Self::BLOCK),
            places: Vec::with_capacity(Self::BLOCK),
        }
    }

    /// Returns the next word; an empty one if the list has no words.
    #[inline]
    pub(crate) fn next<'w>(&mut self, words: &'w Words) -> &'w str {
        match self.places.pop() {
            Some(place) => &words.text[place],
            None => self.draw(words),
        }
    }

    #[inline(never)]
    fn draw<'w>(&mut self, words: &'w Words) -> &'w str {
        if self.indices.is_empty() {
            self.draw_cells(words);
        }
        for index in self.indices.drain(..) {
            let place = words.place(index);
            // A word in its cell is prefetched already; a longer one may cross two lines.
            words.prefetch(place.start);
            words.prefetch(place.end);
            self.places.push(place);
        }
        self.draw_cells(words);
        self.places.pop().map_or("", |place| &words.text[place])
    }

    fn draw_cells(&mut self, words: &Words) {
        for _ in 0..Self::BLOCK.min(words.len()) {
            let index = self.random.below(words.len());
            words.prefetch(index * CELL);
            self.indices.push(index);
        }
    }
}

impl<'a> FromIterator<&'a str> for Words {
    fn from_iter<I: IntoIterator<Item = &'a str>>(words: I) -> Self {
        let words: Vec<&str> = words.into_iter().collect();
        let mut cells = String::with_capacity(words.len() * CELL);
        let mut far = String::new();
        for (index, word) in words.iter().enumerate() {
            if word.len() < CELL {
                cells.push(char::from(word.len() as u8));
                cells.push_str(word);
            } else {
                cells.push(char::from(FAR));
                push_digits(&mut cells, words.len() * CELL + far.len());
                push_digits(&mut cells, word.len());
                far.push_str(word);
            }
            let padding = (index + 1) * CELL - cells.len();
            cells.extend(std::iter::repeat_n('\0', padding));
        }
        cells.push_str(&far);
        Words {
            text: cells,
            count: words.len(),
        }
    }
}

/// A generator of pseudo-random numbers (SplitMix64; Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `bound`, uniform up to the rounding of 64 bits.
    #[inline]
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_of_words_are_the_same_words() {
        let (one, other) = (Words::generated(5000), Words::generated(5000));
        assert_eq!(one.len(), 5000);
        assert_eq!(one.text, other.text);
        let distinct: HashSet<&str> = (0..one.len()).map(|at| one.get(at)).collect();
        assert_eq!(distinct.len(), 5000);
        assert!(distinct.iter().all(|word| (3..=16).contains(&word.len())));
    }

    #[test]
    fn words_of_every_length_come_back() {
        let all: Vec<String> = (0..40)
            .map(|length| "ä".repeat(length / 2) + &"x".repeat(length % 2))
            .chain(["longer ".repeat(100_000)])
            .collect();
        let words: Words = all.iter().map(String::as_str).collect();
        assert_eq!(words.len(), all.len());
        let back = (0..words.len()).map(|at| words.get(at));
        assert!(back.eq(all.iter().map(String::as_str)));
    }

    #[test]
    fn every_word_of_a_list_is_drawn_and_no_other() {
        for count in [1, 2, 63, 300] {
            let words: Vec<String> = (0..count)
                .map(|n| "w".repeat(n % 40) + &n.to_string())
                .collect();
            let list: Words = words.iter().map(String::as_str).collect();
            let mut draws = Draws::new(7);
            let drawn: HashSet<&str> = (0..count * 40).map(|_| draws.next(&list)).collect();
            assert_eq!(drawn, words.iter().map(String::as_str).collect());
        }
    }

    #[test]
    fn a_file_has_a_word_a_line_however_its_lines_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "one\r\n\ntwo\nthree").unwrap();
        let words = Words::from_file(file.path()).unwrap();
        let words: Vec<&str> = (0..words.len()).map(|at| words.get(at)).collect();
        assert_eq!(words, ["one", "two", "three"]);
    }
}
