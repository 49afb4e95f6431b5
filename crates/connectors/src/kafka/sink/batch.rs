//! Encoded messages that wait until their epoch is committed.

use std::sync::Arc;

use ardea_core::{Epoch, Error, ErrorCode, Result, Timestamp};

use super::Outgoing;

/// Size in bytes at which a block is complete.
const BLOCK_BYTES: usize = 64 << 10;
/// Fixed overhead of an encoded message in bytes, without key, value and headers.
const HEAD: usize = 32;
/// Length marker of a missing key or value.
const NONE: u32 = u32::MAX;

/// A message in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BufferedMessage<'a> {
    /// Position of the message's record in the sink's input; for a restored message, in the input
    /// of the earlier attempt.
    pub position: u64,
    pub time: Timestamp,
    pub partition: Option<i32>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// Headers as encoded by [`headers`](crate::kafka::headers).
    pub headers: &'a [u8],
}

impl<'a> BufferedMessage<'a> {
    /// Returns the message of a record.
    pub fn of(out: &'a Outgoing, position: u64, time: Timestamp) -> Self {
        BufferedMessage {
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

    /// Decodes the message at an offset of a block, and returns it with the next offset; `None` at
    /// the end of the block.
    pub fn at(block: &'a [u8], at: usize) -> Result<Option<(Self, usize)>> {
        let rest = block.get(at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let torn = || Error::new(ErrorCode::BadRecord, "a stored message is truncated");
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
        let waiting = BufferedMessage {
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

/// Takes the next `N` bytes.
fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (array, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(array)
}

/// An immutable block of complete messages.
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

/// The messages of the current epoch.
#[derive(Debug, Default)]
pub(crate) struct EpochBuffer {
    blocks: Vec<Block>,
    last: Vec<u8>,
    /// Total size in bytes of all blocks except the last one.
    bytes: usize,
}

impl EpochBuffer {
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.last.is_empty()
    }

    pub fn byte_len(&self) -> usize {
        self.bytes + self.last.len()
    }

    pub fn push(&mut self, message: BufferedMessage<'_>) -> Result<()> {
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

    /// Ends the epoch and returns its messages.
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
        let message = |position, partition, key, value| BufferedMessage {
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
        let mut filling = EpochBuffer::default();
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
            while let Some((message, next)) = BufferedMessage::at(block, at).unwrap() {
                came.push(message);
                at = next;
            }
            assert_eq!(at, block.len());
        }
        assert_eq!(came, messages);
        let torn = &batch.blocks[1][..batch.blocks[1].len() - 1];
        assert_eq!(
            BufferedMessage::at(torn, 0).unwrap_err().code(),
            ErrorCode::BadRecord
        );
    }
}
