//! Arena for short byte strings that share memory.

use std::cell::RefCell;
use std::fmt;

use bytes::{Bytes, BytesMut};
use serde::de::{Deserializer, Error, Visitor};

/// Size of a chunk in bytes. A chunk is freed when all its byte strings are, so it is small. Byte
/// strings longer than a quarter of it are allocated separately.
const PIECE_BYTES: usize = 16 << 10;

thread_local! {
    static PIECES: RefCell<ByteArena> = RefCell::default();
}

/// Arena for short-lived byte strings, which avoids an allocation for each. A byte string keeps its
/// whole chunk alive, so long-lived ones should be copied.
///
/// ```
/// let mut pieces = ardea_grid::protocol::ByteArena::default();
/// assert_eq!((pieces.put(b"ibis"), pieces.put(b"heron")), (b"ibis"[..].into(), b"heron"[..].into()));
/// ```
#[derive(Debug, Default)]
pub struct ByteArena {
    piece: BytesMut,
}

impl ByteArena {
    /// Returns a copy of the bytes.
    pub fn put(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.is_empty() || bytes.len() > PIECE_BYTES / 4 {
            return Bytes::copy_from_slice(bytes);
        }
        if self.piece.capacity() < bytes.len() {
            self.piece = BytesMut::with_capacity(PIECE_BYTES);
        }
        self.piece.extend_from_slice(bytes);
        self.piece.split().freeze()
    }
}

/// Deserializes bytes of a postcard message into the thread's arena.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    struct Run;

    impl Visitor<'_> for Run {
        type Value = Bytes;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
            Ok(PIECES.with_borrow_mut(|pieces| pieces.put(bytes)))
        }

        fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
            Ok(bytes.into())
        }
    }

    from.deserialize_bytes(Run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_what_was_put_however_long_they_are(
            runs in prop::collection::vec((any::<u8>(), 0..PIECE_BYTES), 0..30),
        ) {
            let runs: Vec<Vec<u8>> = runs.into_iter().map(|(byte, length)| vec![byte; length]).collect();
            let mut pieces = ByteArena::default();
            let put: Vec<Bytes> = runs.iter().map(|run| pieces.put(run)).collect();
            prop_assert_eq!(put, runs);
        }
    }
}
