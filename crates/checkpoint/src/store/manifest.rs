//! Manifests: the files that make snapshots.
//!
//! A snapshot is there exactly when its manifest is. The first line of the file is `ardea snapshot 1 xxh3 0123456789abcdef`: the version
//! of the format, and the checksum of all that follows, in hexadecimal. What follows is JSON: a manifest is small beside what it
//! describes, people and other languages can read it, and fields can be added without a new version.

use std::collections::BTreeMap;

use ardea_core::{Error, ErrorCode, Result, Timestamp};
use serde::{Deserialize, Serialize};

use crate::store::SnapshotId;
use crate::store::block::BlockRef;
use crate::store::failure::{damaged, other_job, other_version};
use crate::store::file_name::{FileName, StoredName};
use crate::store::layer::Layer;
use crate::store::sealed::{Unsealed, seal, unseal};

const KIND: &str = "ardea snapshot";
const VERSION: &str = "1";

/// What a manifest says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub job: String,
    pub snapshot: SnapshotId,
    /// The snapshot that the increments of this one are based on.
    pub base: Option<SnapshotId>,
    /// When it was committed, in microseconds since 1970.
    pub at_micros: i64,
    pub vertices: BTreeMap<String, VertexPart>,
}

/// A vertex in a manifest.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct VertexPart {
    /// How many instances it had.
    pub instances: u32,
    /// What was handed over for this snapshot.
    pub cut: CutSummary,
    /// Its state, the oldest layer first.
    pub layers: Vec<Layer>,
}

/// What the instances of a vertex handed over for one snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CutSummary {
    pub full: u32,
    pub increments: u32,
    pub unchanged: u32,
    pub entries: u64,
    pub blocks: u64,
    pub bytes: u64,
    pub unpacked: u64,
    /// Of the slowest.
    pub took_micros: u64,
    /// Of the files' names: tells whether two commits are of the same cuts.
    pub xxh3: crate::store::block::Checksum,
}

impl Manifest {
    /// All blocks that it refers to.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockRef> {
        let layers = self.vertices.values().flat_map(|vertex| &vertex.layers);
        layers.flat_map(Layer::blocks)
    }

    /// Its file.
    pub fn file(&self) -> FileName {
        StoredName::Manifest(self.snapshot).file()
    }

    /// When it was committed.
    pub fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.at_micros)
    }

    /// As it is written.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let body = serde_json::to_vec(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "a manifest can't be written").because(error)
        })?;
        Ok(seal(KIND, VERSION, &body))
    }

    /// Reads the manifest of a snapshot of `job` from its file.
    ///
    /// # Errors
    /// `SnapshotDamaged`, `VersionMismatch`, or `WrongCluster` if it is another job's.
    pub fn decode(id: SnapshotId, job: &str, file: &[u8], place: &str) -> Result<Self> {
        let name = StoredName::Manifest(id).file();
        let wrong = |why: String| damaged(&name, place, why);
        let body = match unseal(KIND, VERSION, file) {
            Ok(body) => body,
            Err(Unsealed::Version(version)) => return Err(other_version(&name, place, &version)),
            Err(Unsealed::Damaged) => {
                return Err(wrong(
                    "its first line does not fit what follows".to_string(),
                ));
            }
        };
        let manifest: Manifest =
            serde_json::from_slice(body).map_err(|error| wrong(error.to_string()))?;
        if manifest.job != job {
            return Err(other_job(&name, place, &manifest.job, job));
        }
        if manifest.snapshot != id {
            return Err(wrong(format!(
                "it is that of snapshot {}",
                manifest.snapshot
            )));
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::Epoch;

    fn manifest() -> Manifest {
        Manifest {
            job: "words".to_string(),
            snapshot: SnapshotId::new(1, Epoch(7)),
            base: Some(SnapshotId::new(1, Epoch(6))),
            at_micros: 12,
            vertices: BTreeMap::new(),
        }
    }

    fn decode(file: &[u8]) -> Result<Manifest> {
        Manifest::decode(manifest().snapshot, "words", file, "here")
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let file = manifest().encode().expect("encoded");
        assert!(file.starts_with(b"ardea snapshot 1 xxh3 "));
        assert_eq!(decode(&file).expect("decoded"), manifest());
    }

    #[test]
    fn any_changed_bit_and_any_cut_is_noticed() {
        let file = manifest().encode().expect("encoded");
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut changed = file.clone();
                changed[at] ^= 1 << bit;
                let error = decode(&changed).expect_err("changed");
                assert!(
                    error.to_string().contains("snapshot-1-7.manifest"),
                    "{error}"
                );
            }
            assert!(decode(&file[..at]).is_err());
        }
    }

    #[test]
    fn another_job_another_snapshot_and_another_version_are_told_apart() {
        let file = manifest().encode().expect("encoded");
        let id = manifest().snapshot;
        let error = Manifest::decode(id, "other", &file, "here").expect_err("another");
        assert_eq!(error.code(), ErrorCode::WrongCluster);
        let other = SnapshotId::new(1, Epoch(8));
        let error = Manifest::decode(other, "words", &file, "here").expect_err("another");
        assert_eq!(error.code(), ErrorCode::SnapshotDamaged);
        let later = [b"ardea snapshot 2", &file[b"ardea snapshot 1".len()..]].concat();
        let error = decode(&later).expect_err("later");
        assert_eq!(error.code(), ErrorCode::VersionMismatch);
    }
}
