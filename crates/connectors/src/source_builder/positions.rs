//! The read positions of partitions in snapshots.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, RestoredEntry, RestoredState, Result, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The name of the state. Its keys are the numbers of the partitions.
pub(super) const STATE: &str = "offsets";

/// The read position of a partition.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadPosition<O> {
    pub offset: O,
    /// True if the partition has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_at_end: bool,
    /// The highest event time, if the source has watermarks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest: Option<Timestamp>,
}

/// The function that returns a reader's offset, and the encoding of offsets.
pub(super) struct OffsetCodec<R, O> {
    offset: Arc<dyn Fn(&R) -> O + Send + Sync>,
    encode: fn(&ReadPosition<O>) -> serde_json::Result<Vec<u8>>,
    decode: fn(&[u8]) -> serde_json::Result<ReadPosition<O>>,
}

impl<R, O> Clone for OffsetCodec<R, O> {
    fn clone(&self) -> Self {
        OffsetCodec {
            offset: Arc::clone(&self.offset),
            ..*self
        }
    }
}

impl<R, O> OffsetCodec<R, O> {
    pub fn new(offset: Arc<dyn Fn(&R) -> O + Send + Sync>) -> Self
    where
        O: Serialize + DeserializeOwned,
    {
        OffsetCodec {
            offset,
            encode: |position| serde_json::to_vec(position),
            decode: |bytes| serde_json::from_slice(bytes),
        }
    }

    /// Returns the encoded position of a reader of a partition.
    pub fn encode(
        &self,
        partition: u32,
        reader: &R,
        (is_at_end, highest): (bool, Option<Timestamp>),
    ) -> Result<Vec<u8>> {
        let position = ReadPosition {
            offset: (self.offset)(reader),
            is_at_end,
            highest,
        };
        (self.encode)(&position).map_err(|error| {
            let what = format!("the offset of partition {partition} cannot be written as JSON");
            Error::new(ErrorCode::UserError, what)
                .because(error)
                .hint("use an offset of numbers, text and structs of these")
                .permanent()
        })
    }

    /// Decodes the position of a partition.
    pub fn decode(&self, partition: u32, bytes: &[u8]) -> Result<ReadPosition<O>> {
        (self.decode)(bytes).map_err(|error| {
            let what =
                format!("the offset of partition {partition} in the checkpoint cannot be read");
            Error::new(ErrorCode::BadRecord, what)
                .because(error)
                .hint("restore the former type of the offset, or start without the checkpoint")
                .permanent()
        })
    }
}

/// Returns the number of the partition of a restored entry.
pub(super) fn partition_of(entry: &RestoredEntry<'_>) -> Result<u32> {
    if entry.state != STATE {
        return Err(RestoredState::unknown(entry));
    }
    match entry.key.try_into() {
        Ok(key) => Ok(u32::from_be_bytes(key)),
        Err(_) => Err(Error::new(
            ErrorCode::BadRecord,
            "the number of a partition in the checkpoint cannot be read",
        )
        .hint("start from another checkpoint")),
    }
}
