//! Messages that wait for their epoch to be committed, as bytes.

use std::sync::Arc;

use ardea_core::{Epoch, Error, ErrorCode, Result, Timestamp};

use super::Outgoing;

/// How many bytes a block has, about, when another one begins.
const BLOCK_BYTES: usize = 64 << 10;
/// How many bytes a message takes besides its key, its value and its headers.
const HEAD: usize = 32;
/// In the place of a length: there is none.
const NONE: u32 = u32::MAX;

/// A message of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting<'a> {
    /// The position of its record in the sink's input; of one from an earlier life, the position there.
    pub position: u64,
    pub time: Timestamp,
    pub partition: Option<i32>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// As [`headers`](crate::kafka::headers) lay them into one buffer.
    pub headers: &'a [u8],
}

impl<'a> Waiting<'a> {
    /// The message of a record.
    pub fn of(out: &'a Outgoing, position: u64, time: Timestamp) -> Self {
        Waiting {
            position,
            time,
            partition: out.partition,
            key: out.key.as_deref(),
            value: out.value.as_deref(),
            headers: &out.headers,
        }
    }

    fn put(&self, block: &mut Vec<u8>) -> Result<()> {
        let length = |part: Option<&[u8]>| match part {
            None => Ok(NONE),
            Some(part) => u32::try_from(part.len())
                .ok()
                .filter(|length| *length != NONE)
                .ok_or_else(|| {
                    Error::new(ErrorCode::LimitReached, "a message of 4 GB is too large")
                }),
        };
        let (key, value) = (length(self.key)?, length(self.value)?);
        let headers = length(Some(self.headers))?;
        block.extend_from_slice(&self.position.to_le_bytes());
        block.extend_from_slice(&self.time.as_micros().to_le_bytes());
        block.extend_from_slice(&self.partition.unwrap_or(-1).to_le_bytes());
        block.extend_from_slice(&key.to_le_bytes());
        block.extend_from_slice(&value.to_le_bytes());
        block.extend_from_slice(&headers.to_le_bytes());
        block.extend_from_slice(self.key.unwrap_or_default());
        block.extend_from_slice(self.value.unwrap_or_default());
        block.extend_from_slice(self.headers);
        Ok(())
    }

    /// The message at a place in a block, and where the next one is; none at its end.
    pub fn at(block: &'a [u8], at: usize) -> Result<Option<(Self, usize)>> {
        let rest = block.get(at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let torn = || Error::new(ErrorCode::BadRecord, "a message that was kept breaks off");
        let mut rest = rest;
        let position = u64::from_le_bytes(*take(&mut rest).ok_or_else(torn)?);
        let time = i64::from_le_bytes(*take(&mut rest).ok_or_else(torn)?);
        let partition = i32::from_le_bytes(*take(&mut rest).ok_or_else(torn)?);
        let lengths = [take(&mut rest), take(&mut rest), take(&mut rest)];
        let mut parts = [None, None, None];
        let mut next = at + HEAD;
        for (part, length) in parts.iter_mut().zip(lengths) {
            let length = u32::from_le_bytes(*length.ok_or_else(torn)?);
            if length != NONE {
                let length = length as usize;
                *part = Some(rest.split_off(..length).ok_or_else(torn)?);
                next += length;
            }
        }
        let waiting = Waiting {
            position,
            time: Timestamp::from_micros(time),
            partition: (partition >= 0).then_some(partition),
            key: parts[0],
            value: parts[1],
            headers: parts[2].unwrap_or_default(),
        };
        Ok(Some((waiting, next)))
    }
}

/// Takes the next bytes.
fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (array, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(array)
}

/// A block of messages, whole ones, which does not change any more.
pub(crate) type Block = Arc<Vec<u8>>;

/// The messages of an epoch.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub epoch: Epoch,
    pub blocks: Vec<Block>,
}

impl Batch {
    pub fn byte_len(&self) -> usize {
        self.blocks.iter().map(|block| block.len()).sum()
    }
}

/// The messages of the epoch at hand.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    blocks: Vec<Block>,
    last: Vec<u8>,
    /// Of all blocks but the last.
    bytes: usize,
}

impl Filling {
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.last.is_empty()
    }

    pub fn byte_len(&self) -> usize {
        self.bytes + self.last.len()
    }

    pub fn push(&mut self, message: Waiting<'_>) -> Result<()> {
        message.put(&mut self.last)?;
        if self.last.len() >= BLOCK_BYTES {
            self.end_block();
        }
        Ok(())
    }

    fn end_block(&mut self) {
        if !self.last.is_empty() {
            self.bytes += self.last.len();
            self.blocks.push(Arc::new(std::mem::take(&mut self.last)));
        }
    }

    /// The epoch has ended: its messages.
    pub fn end(&mut self, epoch: Epoch) -> Batch {
        self.end_block();
        self.bytes = 0;
        Batch {
            epoch,
            blocks: std::mem::take(&mut self.blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let long = vec![7; BLOCK_BYTES];
        let message = |position, partition, key, value| Waiting {
            position,
            time: Timestamp::from_secs(position as i64),
            partition,
            key,
            value,
            headers: if position == 1 { b"h" } else { b"" },
        };
        let messages = [
            message(0, None, None, None),
            message(1, Some(3), Some(&b"k"[..]), Some(&b""[..])),
            message(2, None, Some(&b""[..]), Some(&long)),
            message(3, Some(0), None, Some(&b"v"[..])),
        ];
        let mut filling = Filling::default();
        assert!(filling.is_empty());
        messages
            .iter()
            .for_each(|message| filling.push(*message).unwrap());
        let held = filling.byte_len();
        let batch = filling.end(Epoch(1));
        assert_eq!((batch.blocks.len(), batch.byte_len()), (2, held));
        assert_eq!(filling.byte_len(), 0);
        assert!(filling.is_empty() && filling.end(Epoch(2)).blocks.is_empty());
        let mut came = Vec::new();
        for block in &batch.blocks {
            let mut at = 0;
            while let Some((message, next)) = Waiting::at(block, at).unwrap() {
                came.push(message);
                at = next;
            }
            assert_eq!(at, block.len());
        }
        assert_eq!(came, messages);
        let torn = &batch.blocks[1][..batch.blocks[1].len() - 1];
        assert_eq!(
            Waiting::at(torn, 0).unwrap_err().code(),
            ErrorCode::BadRecord
        );
    }
}
