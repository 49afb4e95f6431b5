//! Messages: the head that is written into the ring, and the view of a message for its reader.

use ardea_core::{Error, ErrorCode, Result};

use crate::layout::{Position, UNIT};
use crate::memory::Memory;

/// The size of a head in the ring, in bytes.
pub(crate) const HEAD_BYTES: usize = 32;
/// The size of the length before each message of a batch, in bytes.
pub(crate) const LENGTH_BYTES: usize = 4;

/// The head of a slot.
///
/// | offset | size | content |
/// |---|---|---|
/// | 0 | 4 | length of the payload in this slot, in bytes |
/// | 4 | 4 | target |
/// | 8 | 8 | epoch |
/// | 16 | 8 | sequence: the number of the slot among those of its producer, from zero |
/// | 24 | 4 | length of the message, which may be in several slots |
/// | 28 | 1 | flags: 1 first part, 2 last part, 4 batch |
/// | 29 | 3 | zero |
///
/// A message in one slot is its own first and last part. A batch is a series of messages, each
/// after its length (4 bytes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) length: u32,
    pub(crate) target: u32,
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) total: u32,
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
    pub(crate) is_batch: bool,
}

impl Head {
    pub(crate) fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0..4].copy_from_slice(&self.length.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.target.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes[24..28].copy_from_slice(&self.total.to_ne_bytes());
        bytes[28] =
            u8::from(self.is_first) | u8::from(self.is_last) << 1 | u8::from(self.is_batch) << 2;
        bytes
    }

    /// Decodes the head of a slot of so many units; `None` if it contradicts the slot or itself.
    pub(crate) fn from_bytes(bytes: [u8; HEAD_BYTES], units: u64) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = *bytes.as_chunks::<4>().0 else {
            return None;
        };
        let long = |low: [u8; 4], high: [u8; 4]| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&low);
            bytes[4..].copy_from_slice(&high);
            u64::from_ne_bytes(bytes)
        };
        let [flags, zeros @ ..] = h;
        let head = Head {
            length: u32::from_ne_bytes(a),
            target: u32::from_ne_bytes(b),
            epoch: long(c, d),
            sequence: long(e, f),
            total: u32::from_ne_bytes(g),
            is_first: flags & 1 != 0,
            is_last: flags & 2 != 0,
            is_batch: flags & 4 != 0,
        };
        let fits = head.length as usize + HEAD_BYTES <= units as usize * UNIT;
        let is_whole = head.is_first && head.is_last;
        let is_plausible = head.length <= head.total && (!is_whole || head.length == head.total);
        (fits && is_plausible && flags < 8 && zeros == [0; 3]).then_some(head)
    }
}

/// The destination of a message, as agreed between producers and the consumer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MessageHead {
    /// The receiver, such as the number of an instance.
    pub target: u32,
    /// The epoch, or zero.
    pub epoch: u64,
}

/// A message that the consumer has reached.
#[derive(Clone, Copy, Debug)]
pub struct RingMessage<'a> {
    /// The destination given by the producer.
    pub head: MessageHead,
    /// The number of the producer.
    pub producer: u8,
    /// The number of the message's last slot among those of its producer.
    pub sequence: u64,
    /// True if the payload is a batch: see [`RingPayload::batch`].
    pub is_batch: bool,
    /// The bytes.
    pub payload: RingPayload<'a>,
}

/// The bytes of a message: in the ring, or assembled from parts.
///
/// Bytes in the ring are shared with the producers. A producer that keeps to the protocol does not
/// change them while the message is borrowed, but a faulty one may. [`copy_to`](Self::copy_to) and
/// [`in_place`](Self::in_place) are safe in both cases: read each byte once, and check it
/// afterwards.
#[derive(Clone, Copy, Debug)]
pub struct RingPayload<'a>(Bytes<'a>);

#[derive(Clone, Copy)]
enum Bytes<'a> {
    InRing {
        memory: &'a Memory,
        position: Position,
        at: usize,
        length: usize,
    },
    Assembled(&'a [u8]),
}

impl std::fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bytes::InRing { length, .. } => write!(f, "{length} bytes in the ring"),
            Bytes::Assembled(bytes) => write!(f, "{} bytes from parts", bytes.len()),
        }
    }
}

impl<'a> RingPayload<'a> {
    pub(crate) fn in_ring(memory: &'a Memory, position: Position, length: usize) -> Self {
        RingPayload(Bytes::InRing {
            memory,
            position,
            at: HEAD_BYTES,
            length,
        })
    }

    pub(crate) fn assembled(bytes: &'a [u8]) -> Self {
        RingPayload(Bytes::Assembled(bytes))
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        match self.0 {
            Bytes::InRing { length, .. } => length,
            Bytes::Assembled(bytes) => bytes.len(),
        }
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `length` bytes from byte `at`; `None` if there are not so many.
    pub fn slice(&self, at: usize, length: usize) -> Option<RingPayload<'a>> {
        if at > self.len() || length > self.len() - at {
            return None;
        }
        Some(RingPayload(match self.0 {
            Bytes::InRing {
                memory,
                position,
                at: start,
                ..
            } => Bytes::InRing {
                memory,
                position,
                at: start + at,
                length,
            },
            Bytes::Assembled(bytes) => Bytes::Assembled(&bytes[at..at + length]),
        }))
    }

    /// Copies the bytes.
    ///
    /// # Panics
    /// If `to` has another length.
    pub fn copy_to(&self, to: &mut [u8]) {
        match self.0 {
            Bytes::InRing {
                memory,
                position,
                at,
                length,
            } => {
                assert_eq!(length, to.len(), "the target has another length");
                memory.read(position, at, to);
            }
            Bytes::Assembled(bytes) => to.copy_from_slice(bytes),
        }
    }

    /// Appends a copy of the bytes.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.resize(start + self.len(), 0);
        self.copy_to(&mut to[start..]);
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes);
        bytes
    }

    /// Returns the bytes where they are, without a copy; `None` if they are not in the ring.
    #[cfg(not(loom))]
    pub fn in_place(&self) -> Option<&'a [std::sync::atomic::AtomicU8]> {
        match self.0 {
            Bytes::InRing {
                memory,
                position,
                at,
                length,
            } => Some(memory.bytes(position, at, length)),
            Bytes::Assembled(_) => None,
        }
    }

    /// Returns the bytes as a plain slice, without a copy.
    ///
    /// # Safety
    ///
    /// Every process that has mapped the ring keeps to the protocol as long as the slice lives.
    /// Otherwise the bytes may change under a shared reference, which is undefined behaviour.
    #[cfg(not(loom))]
    pub unsafe fn as_slice(&self) -> &'a [u8] {
        match self.0 {
            Bytes::InRing {
                memory,
                position,
                at,
                length,
            } => {
                let bytes = memory.bytes(position, at, length);
                // SAFETY: no process writes the bytes (the caller's promise), so they are immutable
                // for the lifetime of the slice, like its memory.
                unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), length) }
            }
            Bytes::Assembled(bytes) => bytes,
        }
    }

    /// Returns the messages of a batch, in order. A length that exceeds the batch ends the series
    /// with an error.
    pub fn batch(&self) -> RingBatch<'a> {
        RingBatch {
            bytes: *self,
            at: 0,
        }
    }
}

/// The messages of a batch: see [`RingPayload::batch`].
#[derive(Clone, Debug)]
pub struct RingBatch<'a> {
    bytes: RingPayload<'a>,
    at: usize,
}

impl<'a> Iterator for RingBatch<'a> {
    type Item = Result<RingPayload<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let mut length = [0; LENGTH_BYTES];
        let message = self.bytes.slice(self.at, LENGTH_BYTES).and_then(|bytes| {
            bytes.copy_to(&mut length);
            let length = u32::from_ne_bytes(length) as usize;
            self.bytes.slice(self.at + LENGTH_BYTES, length)
        });
        match message {
            Some(message) => {
                self.at += LENGTH_BYTES + message.len();
                Some(Ok(message))
            }
            None => {
                let what = format!(
                    "cannot read a batch: its length at byte {} is wrong",
                    self.at
                );
                self.at = self.bytes.len();
                Some(Err(Error::new(ErrorCode::BadMessage, what)))
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const HEAD: Head = Head {
        length: 96,
        target: 7,
        epoch: u64::MAX - 1,
        sequence: 1 << 40,
        total: 200,
        is_first: true,
        is_last: false,
        is_batch: true,
    };

    #[test]
    fn a_head_survives_encoding() {
        assert_eq!(Head::from_bytes(HEAD.to_bytes(), 2), Some(HEAD));
    }

    #[test]
    fn a_head_that_contradicts_its_slot_or_itself_is_refused() {
        let refused = |set: fn(&mut Head)| {
            let mut head = HEAD;
            set(&mut head);
            assert_eq!(Head::from_bytes(head.to_bytes(), 2), None, "{head:?}");
        };
        refused(|head| head.length = 97);
        refused(|head| head.length = u32::MAX);
        refused(|head| head.total = 95);
        refused(|head| head.is_last = true);
        for at in 28..32 {
            let mut bytes = HEAD.to_bytes();
            bytes[at] |= 0x80;
            assert_eq!(Head::from_bytes(bytes, 2), None);
        }
    }

    #[test]
    fn a_batch_with_a_wrong_length_ends_with_an_error() {
        let bytes = [2, 0, 0, 0, 8, 9, 0, 0, 0, 0, 3, 0, 0, 0, 1];
        let mut batch = RingPayload::assembled(&bytes).batch();
        assert_eq!(batch.next().unwrap().unwrap().to_vec(), [8, 9]);
        assert!(batch.next().unwrap().unwrap().is_empty());
        assert!(batch.next().unwrap().is_err());
        assert!(batch.next().is_none());
        let mut batch = RingPayload::assembled(&bytes[..2]).batch();
        assert!(batch.next().unwrap().is_err());
        assert!(batch.next().is_none());
    }
}
