//! A place in a stream of bytes, and what tells that a stream is still the one in which it was.

use serde::{Deserialize, Serialize};

/// How many bytes before a place are kept, to compare.
const KEPT_BEFORE: usize = Passed::KEPT;

/// Where in a stream the next record begins that has not been delivered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    /// How many bytes come before it; of a compressed stream, unpacked.
    pub offset: u64,
    /// The number of its line, from one.
    pub line: u64,
    /// The last of the bytes before it.
    pub before: Vec<u8>,
}

/// The last bytes of those that have gone by.
#[derive(Clone, Default, Debug)]
pub(crate) struct Passed {
    /// How many there have been.
    pub count: u64,
    last: Vec<u8>,
}

impl Passed {
    /// The greatest number of bytes that are kept.
    pub const KEPT: usize = 256;

    /// The last bytes that have gone by.
    pub fn last(&self) -> &[u8] {
        &self.last
    }

    /// As if a stream had been read up to this place.
    pub fn up_to(place: &Place) -> Self {
        Passed {
            count: place.offset,
            last: place.before.clone(),
        }
    }

    /// As if a stream began behind these bytes, of which none counts.
    pub fn behind(before: &Passed) -> Self {
        Passed {
            count: 0,
            last: before.last.clone(),
        }
    }

    /// These have gone by as well.
    pub fn add(&mut self, bytes: &[u8]) {
        self.count += bytes.len() as u64;
        let kept = KEPT_BEFORE.saturating_sub(bytes.len());
        self.last.drain(..self.last.len().saturating_sub(kept));
        let from = bytes.len().saturating_sub(KEPT_BEFORE);
        self.last.extend_from_slice(&bytes[from..]);
    }

    /// Where that is, `line` being the one that comes next.
    pub fn place(self, line: u64) -> Place {
        Place {
            offset: self.count,
            line,
            before: self.last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_bytes_are_kept_however_they_come(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8)
        ) {
            let mut passed = Passed::default();
            pieces.iter().for_each(|piece| passed.add(piece));
            let all = pieces.concat();
            let place = passed.place(3);
            prop_assert_eq!(place.offset, all.len() as u64);
            prop_assert_eq!(&place.before, &all[all.len().saturating_sub(KEPT_BEFORE)..]);
            let again = Passed::up_to(&place).place(3);
            prop_assert_eq!(again, place);
        }
    }
}
