//! Fingerprint of the last record read. A different record at its offset means that the log was
//! replaced.

use rdkafka::message::{BorrowedMessage, Message as _};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// Fingerprint of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    pub offset: i64,
    /// Timestamp in milliseconds; `None` for a record without timestamp.
    pub time: Option<i64>,
    /// Hash of key and value.
    pub hash: u64,
}

impl Fingerprint {
    pub fn of(message: &BorrowedMessage<'_>) -> Self {
        Fingerprint {
            offset: message.offset(),
            time: message.timestamp().to_millis(),
            hash: hash(message.key(), message.payload()),
        }
    }
}

fn hash(key: Option<&[u8]>, value: Option<&[u8]>) -> u64 {
    let mut hash = Xxh3::new();
    for part in [key, value] {
        // A missing part differs from an empty one.
        let length = part.map_or(u64::MAX, |part| part.len() as u64);
        hash.update(&length.to_le_bytes());
        hash.update(part.unwrap_or_default());
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_value_count_and_so_does_that_one_is_missing() {
        let all = [
            hash(None, None),
            hash(Some(b""), None),
            hash(None, Some(b"")),
            hash(Some(b"ab"), Some(b"c")),
            hash(Some(b"a"), Some(b"bc")),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(all[n + 1..].iter().all(|other| other != one), "{n}");
        }
        // The hash is stored in checkpoints, so it must never change.
        assert_eq!(
            hash(Some(b"key"), Some(b"value")),
            10_308_621_350_981_122_677
        );
    }
}
