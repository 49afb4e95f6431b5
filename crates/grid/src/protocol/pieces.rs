//! Short runs of bytes that lie close together, in memory that they share.

use std::cell::RefCell;
use std::fmt;

use bytes::{Bytes, BytesMut};
use serde::de::{Deserializer, Error, Visitor};

/// How many bytes lie in one piece of memory. It is there for as long as one run is, so it is small; what is longer than a quarter has its own.
const PIECE_BYTES: usize = 16 << 10;

thread_local! {
    static PIECES: RefCell<Pieces> = RefCell::default();
}

/// Where runs of bytes go that will soon be gone: to allocate one at a time costs as much as to fill it. A run that stays keeps its whole piece, so who keeps one for long
/// copies it.
///
/// ```
/// let mut pieces = ardea_grid::protocol::Pieces::default();
/// assert_eq!((pieces.put(b"ibis"), pieces.put(b"heron")), (b"ibis"[..].into(), b"heron"[..].into()));
/// ```
#[derive(Debug, Default)]
pub struct Pieces {
    piece: BytesMut,
}

impl Pieces {
    /// A copy of these bytes.
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

/// Reads bytes of a message, which postcard has written.
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
            let mut pieces = Pieces::default();
            let put: Vec<Bytes> = runs.iter().map(|run| pieces.put(run)).collect();
            prop_assert_eq!(put, runs);
        }
    }
}
