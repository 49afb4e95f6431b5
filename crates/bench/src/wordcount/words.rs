//! The words: generated, the same from the same seed, or read from a file.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};

/// The seed of the generated words.
const SEED: u64 = 2017;

/// A list of words, in one piece of memory.
#[derive(Debug)]
pub(crate) struct Words {
    text: String,
    ends: Vec<u32>,
}

impl Words {
    /// Those of this file, or else so many that are generated.
    pub(crate) fn of(file: Option<&Path>, count: usize) -> Result<Words> {
        match file {
            Some(path) => Words::from_file(path),
            None => Ok(Words::generated(count)),
        }
    }

    /// So many distinct words of 3 to 16 small letters.
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

    /// A word a line.
    pub(crate) fn from_file(path: &Path) -> Result<Words> {
        let fail = |error: Error| error.hint("name a text in UTF-8 with a word a line");
        let text = fs::read_to_string(path).map_err(|error| {
            let what = format!("the words of {} could not be read", path.display());
            fail(Error::new(ErrorCode::ReadFailed, what).because(error))
        })?;
        let words = Words::from_iter(text.lines().filter(|line| !line.is_empty()));
        if words.ends.is_empty() {
            let what = format!("there is no word in {}", path.display());
            return Err(fail(Error::new(ErrorCode::InvalidConfig, what)));
        }
        Ok(words)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The word at this place.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &str {
        self.at(self.place(index))
    }

    /// Where the word at `index` begins and ends.
    #[inline]
    fn place(&self, index: usize) -> (u32, u32) {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        (start, self.ends[index])
    }

    #[inline]
    fn at(&self, (start, end): (u32, u32)) -> &str {
        &self.text[start as usize..end as usize]
    }
}

/// Random words of a list, drawn many at a time: the list is larger than the nearer caches, and the waits for memory overlap.
#[derive(Debug)]
pub(crate) struct Draws {
    random: Random,
    places: Vec<(u32, u32)>,
    /// Where touching leads, so that it is not optimised away.
    touched: u64,
}

impl Draws {
    /// How many are drawn at a time.
    const BLOCK: usize = 256;

    pub(crate) fn new(seed: u64) -> Self {
        Draws {
            random: Random(seed),
            places: Vec::with_capacity(Self::BLOCK),
            touched: 0,
        }
    }

    /// The next word.
    #[inline]
    pub(crate) fn next<'w>(&mut self, words: &'w Words) -> &'w str {
        match self.places.pop() {
            Some(place) => words.at(place),
            None => self.draw(words),
        }
    }

    #[inline(never)]
    fn draw<'w>(&mut self, words: &'w Words) -> &'w str {
        let random = &mut self.random;
        let draws = (0..Self::BLOCK).map(|_| words.place(random.below(words.len())));
        self.places.extend(draws);
        let text = words.text.as_bytes();
        let firsts = self
            .places
            .iter()
            .map(|(start, _)| u64::from(text[*start as usize]));
        self.touched = firsts.fold(self.touched, u64::wrapping_add);
        self.places.pop().map_or("", |place| words.at(place))
    }
}

impl<'a> FromIterator<&'a str> for Words {
    fn from_iter<I: IntoIterator<Item = &'a str>>(words: I) -> Self {
        let mut list = Words {
            text: String::new(),
            ends: Vec::new(),
        };
        for word in words {
            list.text.push_str(word);
            list.ends.push(list.text.len() as u32);
        }
        list
    }
}

/// Random numbers that are the same from the same seed (SplitMix64; Steele, Lea, Flood 2014).
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

    /// Below `bound`, each as likely as the others but for what 64 bits can't divide evenly.
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
        assert_eq!((&one.text, &one.ends), (&other.text, &other.ends));
        let distinct: HashSet<&str> = (0..one.len()).map(|at| one.get(at)).collect();
        assert_eq!(distinct.len(), 5000);
        assert!(distinct.iter().all(|word| (3..=16).contains(&word.len())));
    }
}
