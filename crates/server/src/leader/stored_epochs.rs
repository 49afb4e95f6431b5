//! The encoded value of the node with a job's checkpoint record: the current attempt, the committed
//! epoch, and the manifests of checkpoints.
//!
//! ```text
//! "ARDE"   4 bytes
//! version  2 bytes, little-endian
//! the rest    zstd of postcard
//! ```
//!
//! The value is compressed because the receipts of a thousand workers take 100 KB and more, and are
//! similar.

use std::sync::Arc;

use ardea_coordination::control::CheckpointRecord;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::MAX_VALUE_BYTES;

use crate::leader::encoded_value::{pack, unpack};

const LETTERS: [u8; 4] = *b"ARDE";

/// The version of the layout.
const VERSION: u16 = 1;

/// The size of the magic bytes and the version.
const HEAD_BYTES: usize = 6;

/// Encodes the record.
///
/// # Errors
///
/// [`ErrorCode::LimitReached`], with the size and the limit, if the value exceeds the limit of the
/// metadata store.
pub(crate) fn encode(record: &CheckpointRecord) -> Result<Vec<u8>> {
    let name = format!("the checkpoint record of job {}", record.job);
    let header = [&LETTERS[..], &VERSION.to_le_bytes()].concat();
    let value = pack(&name, &header, record)?;
    if value.len() > MAX_VALUE_BYTES {
        let kept = record.checkpoints.len();
        let what = format!(
            "{name}, with {kept} checkpoints, takes {} bytes, and the metadata store allows {MAX_VALUE_BYTES}",
            value.len(),
        );
        return Err(Error::new(ErrorCode::LimitReached, what)
            .hint("retain fewer checkpoints, delete savepoints, or use fewer containers"));
    }
    Ok(value)
}

/// Decodes the record.
///
/// # Errors
///
/// [`ErrorCode::VersionMismatch`] for another layout, [`ErrorCode::MetastoreCorrupt`] if the value
/// is damaged.
pub(crate) fn decode(value: &[u8]) -> Result<Arc<CheckpointRecord>> {
    let head = value.split_first_chunk::<HEAD_BYTES>();
    let Some((head, packed)) = head.filter(|(head, _)| head.starts_with(&LETTERS)) else {
        return Err(damaged(
            "it does not begin with the magic bytes of a checkpoint record",
        ));
    };
    let [.., low, high] = *head;
    let version = u16::from_le_bytes([low, high]);
    if version != VERSION {
        let what = format!(
            "a job's checkpoint record is stored in layout {version}, and this version of Ardea reads layout {VERSION}"
        );
        return Err(Error::new(ErrorCode::VersionMismatch, what)
            .hint("run the same version of ardea in all processes of the cluster"));
    }
    let record = unpack(packed).map_err(damaged)?;
    Ok(Arc::new(record))
}

fn damaged(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(
        ErrorCode::MetastoreCorrupt,
        "a job's checkpoint record is damaged",
    )
    .because(why)
    .hint("the job can't continue: kill it, and submit it again from its newest savepoint (recovery.from); without one it starts with empty state")
}

#[cfg(test)]
mod tests {
    use ardea_coordination::control::{Generation, JobRef, PlanVersion};
    use ardea_core::Epoch;
    use proptest::prelude::*;

    use super::*;

    fn record() -> CheckpointRecord {
        let mut record = CheckpointRecord::new(JobRef {
            cluster: "prod".into(),
            name: "word-count".into(),
            submission: 42,
        });
        record.generation = Generation(3);
        record.plan = PlanVersion(2);
        record.numbers = Epoch(128);
        record
    }

    #[test]
    fn what_is_written_reads_back() {
        let value = encode(&record()).unwrap();
        assert_eq!(*decode(&value).unwrap(), record());
    }

    #[test]
    fn another_layout_is_refused_with_both_versions() {
        let mut value = encode(&record()).unwrap();
        value[4] = 9;
        let error = decode(&value).unwrap_err();
        assert_eq!(error.code(), ErrorCode::VersionMismatch);
        assert!(error.to_string().contains('9'), "{error}");
    }

    proptest! {
        #[test]
        fn damage_is_an_error_and_never_a_panic(
            at in 0_usize..200,
            to in any::<u8>(),
            cut in 0_usize..200,
        ) {
            let mut value = encode(&record()).unwrap();
            let at = at % value.len();
            value[at] = to;
            value.truncate(value.len().saturating_sub(cut));
            let _ = decode(&value);
        }
    }
}
