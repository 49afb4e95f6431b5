//! Letters in a row, as they travel.

use std::any::Any;

use ardea_core::{Chunk, ChunkCodec, Error, ErrorCode, Records, Result};

/// The bytes before each letter on the wire.
const HEAD_BYTES: usize = 16;

/// Where a letter goes: the side channel among those of the job, the vertex among those of the channel, and the instance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Address {
    pub(super) channel: u32,
    pub(super) vertex: u32,
    pub(super) instance: u32,
}

/// Letters one behind the other: one piece of memory for all.
#[derive(Debug, Default)]
pub(super) struct Letters {
    /// Of each letter: where it goes, and where it ends.
    heads: Vec<(Address, usize)>,
    bytes: Vec<u8>,
    /// How many of the first have been taken.
    taken: usize,
}

impl Letters {
    /// Where a letter may be written, at the end; [`seal`](Self::seal) makes it one.
    pub(super) fn space(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// What was written since the last letter is one, and goes there.
    pub(super) fn seal(&mut self, address: Address) {
        self.heads.push((address, self.bytes.len()));
    }

    /// How long they are together, in bytes.
    pub(super) fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The first letter that was not taken, which is then.
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

impl Records for Letters {
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

/// How letters become bytes: channel, vertex, instance and length, four bytes each, and the letter.
pub(crate) struct LettersCodec;

impl ChunkCodec for LettersCodec {
    fn encode(&self, chunk: &mut Chunk, limit: usize, out: &mut Vec<u8>) -> Result<usize> {
        let letters = chunk.batch::<Letters>()?;
        let start = out.len();
        let mut count = 0;
        // As many as a header can count, at most.
        while count < usize::from(u16::MAX) && (count == 0 || out.len() - start < limit) {
            let Some((address, letter)) = letters.take() else {
                break;
            };
            let Ok(length) = u32::try_from(letter.len()) else {
                return Err(Error::new(
                    ErrorCode::LimitReached,
                    format!("a letter of {} bytes is too long", letter.len()),
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
            Error::new(ErrorCode::BadRecord, "letters of a container can't be read")
                .hint("run the same version of ardea on all workers")
        };
        if !chunk.is_allocated() {
            *chunk = Chunk::new(Letters::default());
        }
        let letters = chunk.batch::<Letters>()?;
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
        let mut letters = Letters::default();
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
                let count = LettersCodec.encode(&mut chunk, limit, &mut payload).unwrap();
                prop_assert!(count > 0);
                LettersCodec.decode(count, &payload, &mut into).unwrap();
                let batch = into.batch::<Letters>().unwrap();
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
            let _ = LettersCodec.decode(records, &payload, &mut Chunk::default());
        }
    }
}
