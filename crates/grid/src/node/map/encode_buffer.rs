//! Encoding of entries with few allocations.

use std::cell::RefCell;

use crate::protocol::ByteArena;
use ardea_core::Result;
use bytes::Bytes;

/// Maximum capacity of the buffer that is retained, in bytes.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    static PEN: RefCell<EncodeBuffer> = RefCell::default();
}

/// Buffer for entries of unknown length, and the arena to which they are copied.
#[derive(Default)]
struct EncodeBuffer {
    written: Vec<u8>,
    pieces: ByteArena,
}

/// Encodes an entry. `write` appends the key and then the value, and returns the position of the
/// value.
pub(super) fn entry(write: impl FnOnce(&mut Vec<u8>) -> Result<usize>) -> Result<(Bytes, Bytes)> {
    // Taken, not borrowed: user code in `write` may encode other entries.
    let mut pen = PEN.take();
    pen.written.clear();
    let entry = write(&mut pen.written).map(|at| {
        let mut key = match pen.written.len() > KEPT_BYTES {
            true => pen.given(),
            false => pen.pieces.put(&pen.written),
        };
        let value = key.split_off(at);
        (key, value)
    });
    pen.written.shrink_to(KEPT_BYTES);
    PEN.set(pen);
    entry
}

impl EncodeBuffer {
    /// Returns the buffer itself, without a copy, since it is too large to be retained.
    fn given(&mut self) -> Bytes {
        let mut written = std::mem::take(&mut self.written);
        written.shrink_to_fit();
        written.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_what_was_written_however_long_they_are() {
        let entries: Vec<_> = (0..200_usize)
            .map(|turn| (vec![1_u8; turn % 7], vec![turn as u8; turn * turn]))
            .collect();
        let write = |(key, value): &(Vec<u8>, Vec<u8>)| {
            entry(|bytes| {
                bytes.extend(key);
                bytes.extend(value);
                Ok(key.len())
            })
        };
        let written: Vec<_> = entries.iter().map(|it| write(it).unwrap()).collect();
        for ((key, value), written) in entries.iter().zip(&written) {
            assert_eq!((&key[..], &value[..]), (&written.0[..], &written.1[..]));
        }
    }

    #[test]
    fn an_entry_may_write_another_one() {
        let outer = entry(|bytes| {
            let (inner, _) = entry(|bytes| {
                bytes.extend(b"inner");
                Ok(5)
            })?;
            bytes.extend(inner);
            Ok(5)
        });
        assert_eq!(outer.unwrap().0, &b"inner"[..]);
    }
}
