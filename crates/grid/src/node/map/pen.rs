//! Keys and values as bytes, with few allocations.

use std::cell::RefCell;

use crate::protocol::Pieces;
use ardea_core::Result;
use bytes::Bytes;

/// What is kept of the memory in which entries are written, in bytes.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    static PEN: RefCell<Pen> = RefCell::default();
}

/// Where entries are written before it is known how long they are, and where they go then.
#[derive(Default)]
struct Pen {
    written: Vec<u8>,
    pieces: Pieces,
}

/// A key and a value, written one behind the other by `write`, which says where the value begins.
pub(super) fn entry(write: impl FnOnce(&mut Vec<u8>) -> Result<usize>) -> Result<(Bytes, Bytes)> {
    // Taken, not borrowed: what is written may be of somebody's own making, and write other entries.
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

impl Pen {
    /// What is written, with its memory: that is not kept anyway, so nothing need be copied.
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
