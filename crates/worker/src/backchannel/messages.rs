//! Batches of side-channel messages and their wire format.

use std::any::Any;

use ardea_core::{Chunk, ChunkCodec, Error, ErrorCode, Records, Result};

/// Size of the header of each message on the wire.
const HEAD_BYTES: usize = 16;

/// The destination of a message: the index of the side channel in the job, the index of the vertex
/// in the channel, and the instance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Address {
    pub(super) channel: u32,
    pub(super) vertex: u32,
    pub(super) instance: u32,
}

/// A batch of messages in one buffer.
#[derive(Debug, Default)]
pub(super) struct BackchannelBatch {
    /// The destination and the end offset of each message.
    heads: Vec<(Address, usize)>,
    bytes: Vec<u8>,
    /// The number of messages already taken from the front of the batch.
    taken: usize,
}

impl BackchannelBatch {
    /// Returns the buffer to which the caller appends a message; [`seal`](Self::seal) completes the
    /// message.
    pub(super) fn space(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Completes the appended message for this destination.
    pub(super) fn seal(&mut self, address: Address) {
        self.heads.push((address, self.bytes.len()));
    }

    /// Returns the total size in bytes.
    pub(super) fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the next message.
    pub(super) fn take(&mut self) -> Option<(Address, &[u8])> {
        let start = match self.taken {
            0 => 0,
            taken => self.heads[taken - 1].1,
        };
        let (address, end) = *self.heads.get(self.taken)?;
        self.taken += 1;
        Some((address, &self.bytes[start..end]))
    }
}

impl Records for BackchannelBatch {
    fn len(&self) -> usize {
        self.heads.len() - self.taken
    }

    fn clear(&mut self) {
        self.heads.clear();
        self.bytes.clear();
        self.taken = 0;
    }

    fn type_name(&self) -> &'static str {
        "letters"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The codec of message batches: channel, vertex, instance and length as four bytes each, then the
/// message.
pub(crate) struct BackchannelCodec;

impl ChunkCodec for BackchannelCodec {
    fn encode(&self, chunk: &mut Chunk, limit: usize, out: &mut Vec<u8>) -> Result<usize> {
        let letters = chunk.batch::<BackchannelBatch>()?;
        let start = out.len();
        let mut count = 0;
        // The count is limited by the record count field of a frame header.
        while count < usize::from(u16::MAX) && (count == 0 || out.len() - start < limit) {
            let Some((address, letter)) = letters.take() else {
                break;
            };
            let Ok(length) = u32::try_from(letter.len()) else {
                return Err(Error::new(
                    ErrorCode::LimitReached,
                    format!(
                        "a side-channel message of {} bytes is too long",
                        letter.len()
                    ),
                ));
            };
            for number in [address.channel, address.vertex, address.instance, length] {
                out.extend(number.to_le_bytes());
            }
            out.extend_from_slice(letter);
            count += 1;
        }
        if letters.is_empty() {
            letters.clear();
        }
        Ok(count)
    }

    fn decode(&self, records: usize, mut payload: &[u8], chunk: &mut Chunk) -> Result<()> {
        let damaged = || {
            Error::new(
                ErrorCode::BadRecord,
                "side-channel messages of a container can't be decoded",
            )
            .hint("run the same version of ardea on all workers")
        };
        if !chunk.is_allocated() {
            *chunk = Chunk::new(BackchannelBatch::default());
        }
        let letters = chunk.batch::<BackchannelBatch>()?;
        for _ in 0..records {
            let (head, rest) = payload
                .split_first_chunk::<HEAD_BYTES>()
                .ok_or_else(damaged)?;
            let number = |at: usize| {
                u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let length = number(12) as usize;
            if rest.len() < length {
                return Err(damaged());
            }
            let (letter, rest) = rest.split_at(length);
            letters.space().extend_from_slice(letter);
            letters.seal(Address {
                channel: number(0),
                vertex: number(4),
                instance: number(8),
            });
            payload = rest;
        }
        match payload.is_empty() {
            true => Ok(()),
            false => Err(damaged()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn letters(posted: &[(u32, Vec<u8>)]) -> Chunk {
        let mut letters = BackchannelBatch::default();
        for (instance, letter) in posted {
            letters.space().extend(letter);
            letters.seal(Address {
                channel: 1,
                vertex: 2,
                instance: *instance,
            });
        }
        Chunk::new(letters)
    }

    proptest! {
        #[test]
        fn letters_arrive_as_they_were_posted_however_they_are_cut(
            posted in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 0..50)), 0..40),
            limit in 1_usize..200,
        ) {
            let mut chunk = letters(&posted);
            let mut got = Vec::new();
            let mut into = Chunk::default();
            while !chunk.is_empty() {
                let mut payload = Vec::new();
                let count = BackchannelCodec.encode(&mut chunk, limit, &mut payload).unwrap();
                prop_assert!(count > 0);
                BackchannelCodec.decode(count, &payload, &mut into).unwrap();
                let batch = into.batch::<BackchannelBatch>().unwrap();
                while let Some((address, letter)) = batch.take() {
                    prop_assert_eq!((address.channel, address.vertex), (1, 2));
                    got.push((address.instance, letter.to_vec()));
                }
                into.clear();
            }
            prop_assert_eq!(got, posted);
        }

        #[test]
        fn any_bytes_are_letters_or_an_error(
            payload in prop::collection::vec(any::<u8>(), 0..200),
            records in 0_usize..6,
        ) {
            let _ = BackchannelCodec.decode(records, &payload, &mut Chunk::default());
        }
    }
}
