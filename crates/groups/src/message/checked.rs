//! Numbers of received messages, checked when they are decoded: arithmetic on them cannot overflow.

use serde::{Deserialize, Deserializer};

use ardea_coordination::control::MAX_GROUP_SIZE;

/// The largest number of a micro-batch in a message.
const MAX_BATCH_NUMBER: u64 = 1 << 62;

/// The serde module of numbers of micro-batches.
pub(super) mod batch_number {
    use ardea_core::MicroBatch;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::MAX_BATCH_NUMBER;

    pub(crate) fn serialize<S: Serializer>(batch: &MicroBatch, to: S) -> Result<S::Ok, S::Error> {
        batch.0.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<MicroBatch, D::Error> {
        match u64::deserialize(from)? {
            number @ 0..=MAX_BATCH_NUMBER => Ok(MicroBatch(number)),
            _ => Err(D::Error::custom("the number of a micro-batch is too large")),
        }
    }
}

/// Decodes the number of micro-batches of a group.
pub(super) fn group_size<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        size @ 1..=MAX_GROUP_SIZE => Ok(size),
        _ => Err(serde::de::Error::custom(
            "a group has no micro-batch, or too many",
        )),
    }
}
