//! The queue of a connection's unsent buffers, as a stream of bytes.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::exchange::frame::{Payload, SendBuffer};
use crate::exchange::header::HEADER_BYTES;

/// Maximum number of slices of one vectored write; each frame has up to two.
const PIECES: usize = 64;

/// Unsent buffers, in order.
#[derive(Debug)]
pub(crate) struct SendQueue {
    unsent: VecDeque<SendBacklog>,
    bytes: usize,
    /// Number of bytes already written of the first unsent buffer.
    written: usize,
    max_bytes: usize,
    max_parcels: usize,
}

#[derive(Debug)]
struct SendBacklog {
    head: [u8; HEADER_BYTES],
    head_bytes: usize,
    body: Payload,
}

impl SendBacklog {
    fn len(&self) -> usize {
        self.head_bytes + self.body.len()
    }
}

impl SendQueue {
    /// Creates a queue that accepts no buffer while it has `max_bytes` or `max_parcels`.
    pub(crate) fn new(max_bytes: usize, max_parcels: usize) -> Self {
        SendQueue {
            unsent: VecDeque::with_capacity(max_parcels),
            bytes: 0,
            written: 0,
            max_bytes,
            max_parcels,
        }
    }

    /// Returns the number of unsent bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a buffer, or returns it if the queue is full.
    pub(crate) fn push(&mut self, parcel: SendBuffer) -> Result<(), SendBuffer> {
        if self.bytes >= self.max_bytes || self.unsent.len() >= self.max_parcels {
            return Err(parcel);
        }
        self.bytes += parcel.wire_bytes();
        self.unsent.push_back(match parcel {
            SendBuffer::Frame(frame) => SendBacklog {
                head: frame.header.encode(frame.payload.len()),
                head_bytes: HEADER_BYTES,
                body: frame.payload,
            },
            SendBuffer::Bundle(body) => SendBacklog {
                head: [0; HEADER_BYTES],
                head_bytes: 0,
                body,
            },
        });
        Ok(())
    }

    /// Returns the number of bytes of the first unsent buffers that have at most `most` bytes
    /// together. A longer first buffer is split.
    pub(crate) fn whole_bytes(&self, most: usize) -> usize {
        let mut whole = 0;
        let mut skip = self.written;
        for parcel in self.unsent.iter().take(PIECES / 2) {
            let rest = parcel.len() - std::mem::take(&mut skip);
            if whole + rest > most {
                break;
            }
            whole += rest;
        }
        if whole > 0 {
            whole
        } else {
            most.min(self.bytes)
        }
    }

    /// Passes the first unsent bytes to `write`, in slices of which none is empty. There may be
    /// more bytes than these.
    pub(crate) fn with_pieces<R>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        let mut skip = self.written;
        for parcel in self.unsent.iter().take(PIECES / 2) {
            for bytes in [&parcel.head[..parcel.head_bytes], &parcel.body[..]] {
                let rest = &bytes[skip.min(bytes.len())..];
                skip -= bytes.len() - rest.len();
                if !rest.is_empty() {
                    pieces[count] = IoSlice::new(rest);
                    count += 1;
                }
            }
        }
        write(&pieces[..count])
    }

    /// Removes the first `bytes`, which have been sent.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.written += bytes;
        while let Some(front) = self.unsent.front() {
            if self.written < front.len() {
                break;
            }
            self.written -= front.len();
            self.unsent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(lengths: &[usize]) -> SendQueue {
        let mut queue = SendQueue::new(1 << 20, 64);
        for &length in lengths {
            let bundle = Payload::copy_of(&vec![7; length]);
            queue.push(SendBuffer::Bundle(bundle)).unwrap();
        }
        queue
    }

    #[test]
    fn buffers_that_fit_are_whole_and_a_longer_one_is_split() {
        assert_eq!(queue(&[]).whole_bytes(100), 0);
        assert_eq!(queue(&[30, 40, 50]).whole_bytes(100), 70);
        assert_eq!(queue(&[30, 40, 30]).whole_bytes(100), 100);
        let mut queue = queue(&[250, 30]);
        assert_eq!(queue.whole_bytes(100), 100);
        queue.advance(200);
        assert_eq!(queue.whole_bytes(100), 80);
        queue.advance(80);
        assert_eq!((queue.whole_bytes(100), queue.bytes()), (0, 0));
    }
}
