//! A position in a stream of bytes, with the bytes before it to verify the stream.

use serde::{Deserialize, Serialize};

/// The number of bytes before a position that are stored for comparison.
const KEPT_BEFORE: usize = TrailingBytes::KEPT;

/// The position of the first record that has not been emitted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct StreamPosition {
    /// The number of bytes before the record; in a compressed stream, of decompressed bytes.
    pub offset: u64,
    /// The line number of the record, from one.
    pub line: u64,
    /// The last bytes before the record, at most [`KEPT_BEFORE`].
    pub before: Vec<u8>,
}

/// The last bytes before a moving position.
#[derive(Clone, Default, Debug)]
pub(crate) struct TrailingBytes {
    /// The total number of bytes before the position.
    pub count: u64,
    last: Vec<u8>,
}

impl TrailingBytes {
    /// The maximum number of bytes retained.
    pub const KEPT: usize = 256;

    /// Returns the last bytes.
    pub fn last(&self) -> &[u8] {
        &self.last
    }

    /// Returns the state after reading a stream up to this position.
    pub fn up_to(place: &StreamPosition) -> Self {
        TrailingBytes {
            count: place.offset,
            last: place.before.clone(),
        }
    }

    /// Returns the state at the start of a stream that follows the bytes `before`, which do not
    /// count.
    pub fn behind(before: &TrailingBytes) -> Self {
        TrailingBytes {
            count: 0,
            last: before.last.clone(),
        }
    }

    /// Appends bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.count += bytes.len() as u64;
        let kept = KEPT_BEFORE.saturating_sub(bytes.len());
        self.last.drain(..self.last.len().saturating_sub(kept));
        let from = bytes.len().saturating_sub(KEPT_BEFORE);
        self.last.extend_from_slice(&bytes[from..]);
    }

    /// Returns this position; `line` is the number of the next line.
    pub fn place(self, line: u64) -> StreamPosition {
        StreamPosition {
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
            let mut passed = TrailingBytes::default();
            pieces.iter().for_each(|piece| passed.add(piece));
            let all = pieces.concat();
            let place = passed.place(3);
            prop_assert_eq!(place.offset, all.len() as u64);
            prop_assert_eq!(&place.before, &all[all.len().saturating_sub(KEPT_BEFORE)..]);
            let again = TrailingBytes::up_to(&place).place(3);
            prop_assert_eq!(again, place);
        }
    }
}
