//! The values of all variables between two iterations, as bytes.

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// The first bytes of a snapshot: name and version of the format.
const MAGIC: &[u8; 8] = b"ardeait1";

/// The values of all variables after a group of iterations.
///
/// A run that continues from it has the same results as a run without interruption.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    pub(crate) iterations: u64,
    /// Names and encoded values.
    pub(crate) values: Vec<(String, Vec<u8>)>,
}

impl Snapshot {
    /// Returns the number of iterations whose updates the snapshot contains.
    pub fn iterations(&self) -> u64 {
        self.iterations
    }

    /// Returns the names of the variables.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the snapshot as bytes with a checksum, for a file or a state of a job.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`] if it can't be encoded.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let body = postcard::to_allocvec(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "a snapshot can't be encoded").because(error)
        })?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&xxh3_64(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }

    /// Returns the snapshot that [`to_bytes`](Self::to_bytes) has encoded.
    ///
    /// # Errors
    /// [`ErrorCode::CheckpointDamaged`] if the bytes are no snapshot, or are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = |reason: &str| {
            let what = format!(
                "{} bytes are no snapshot of an iteration: {reason}",
                bytes.len()
            );
            Error::new(ErrorCode::CheckpointDamaged, what).hint("use an older snapshot")
        };
        let rest = bytes.strip_prefix(MAGIC);
        let rest = rest.ok_or_else(|| damaged("they begin differently"))?;
        let (sum, body) = rest
            .split_first_chunk::<8>()
            .ok_or_else(|| damaged("they are cut off"))?;
        if xxh3_64(body) != u64::from_le_bytes(*sum) {
            return Err(damaged("the checksum is wrong"));
        }
        postcard::from_bytes(body).map_err(|error| damaged("they can't be decoded").because(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_snapshot_is_refused() {
        let snapshot = Snapshot {
            iterations: 7,
            values: vec![("model".into(), vec![1, 2, 3])],
        };
        let bytes = snapshot.to_bytes().unwrap();
        assert_eq!(Snapshot::from_bytes(&bytes).unwrap(), snapshot);
        for cut in 0..bytes.len() {
            assert!(Snapshot::from_bytes(&bytes[..cut]).is_err());
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 4;
            let error = Snapshot::from_bytes(&bytes).unwrap_err();
            assert_eq!(error.code(), ErrorCode::CheckpointDamaged);
        }
    }
}
