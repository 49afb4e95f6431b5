//! Manifests: the files that define checkpoints.
//!
//! A checkpoint exists exactly when its manifest does. The first line of the file is `ardea
//! checkpoint 1 xxh3 0123456789abcdef`: the version of the format, and the checksum of everything
//! after the line, in hexadecimal. The rest is JSON, which is small compared with the state,
//! readable, and extensible without a new version.

use std::collections::BTreeMap;

use ardea_core::{Error, ErrorCode, Result, Timestamp};
use serde::{Deserialize, Serialize};

use crate::store::CheckpointId;
use crate::store::block::BlockRef;
use crate::store::checksummed_file::{Unsealed, seal, unseal};
use crate::store::failure::{damaged, other_job, other_version};
use crate::store::file_name::{FileName, StoredName};
use crate::store::layer::Layer;

const KIND: &str = "ardea checkpoint";
const VERSION: &str = "1";

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub job: String,
    pub checkpoint: CheckpointId,
    /// The checkpoint that the increments of this one are based on.
    pub base: Option<CheckpointId>,
    /// The commit time, in microseconds since 1970.
    pub at_micros: i64,
    pub vertices: BTreeMap<String, VertexPart>,
}

/// The part of a manifest for one vertex.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct VertexPart {
    pub instances: u32,
    /// The summary of the vertex' snapshots for this checkpoint.
    pub snapshot: SnapshotSummary,
    /// The layers of the vertex' state, oldest first.
    pub layers: Vec<Layer>,
}

/// A summary of a vertex' snapshots for one checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SnapshotSummary {
    pub full: u32,
    pub increments: u32,
    pub unchanged: u32,
    pub entries: u64,
    pub blocks: u64,
    pub bytes: u64,
    pub unpacked: u64,
    /// The write duration of the slowest snapshot, in microseconds.
    pub took_micros: u64,
    /// The hash of the snapshots' file names, which identifies the set of snapshots.
    pub xxh3: crate::store::block::Checksum,
}

impl Manifest {
    /// Returns all blocks that the manifest refers to.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockRef> {
        let layers = self.vertices.values().flat_map(|vertex| &vertex.layers);
        layers.flat_map(Layer::blocks)
    }

    pub fn file(&self) -> FileName {
        StoredName::Manifest(self.checkpoint).file()
    }

    pub fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.at_micros)
    }

    pub fn encode(&self) -> Result<Vec<u8>> {
        let body = serde_json::to_vec(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "a manifest can't be written").because(error)
        })?;
        Ok(seal(KIND, VERSION, &body))
    }

    /// Decodes the manifest of a checkpoint of `job` from its file.
    ///
    /// # Errors
    /// `CheckpointDamaged`, `VersionMismatch`, or `WrongCluster` if the manifest belongs to another
    /// job.
    pub fn decode(id: CheckpointId, job: &str, file: &[u8], place: &str) -> Result<Self> {
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
        if manifest.checkpoint != id {
            return Err(wrong(format!(
                "it is that of checkpoint {}",
                manifest.checkpoint
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
            checkpoint: CheckpointId::new(1, Epoch(7)),
            base: Some(CheckpointId::new(1, Epoch(6))),
            at_micros: 12,
            vertices: BTreeMap::new(),
        }
    }

    fn decode(file: &[u8]) -> Result<Manifest> {
        Manifest::decode(manifest().checkpoint, "words", file, "here")
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let file = manifest().encode().expect("encoded");
        assert!(file.starts_with(b"ardea checkpoint 1 xxh3 "));
        assert_eq!(decode(&file).expect("decoded"), manifest());
    }

    #[test]
    fn any_changed_bit_and_any_snapshot_is_noticed() {
        let file = manifest().encode().expect("encoded");
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut changed = file.clone();
                changed[at] ^= 1 << bit;
                let error = decode(&changed).expect_err("changed");
                assert!(
                    error.to_string().contains("checkpoint-1-7.manifest"),
                    "{error}"
                );
            }
            assert!(decode(&file[..at]).is_err());
        }
    }

    #[test]
    fn another_job_another_checkpoint_and_another_version_are_told_apart() {
        let file = manifest().encode().expect("encoded");
        let id = manifest().checkpoint;
        let error = Manifest::decode(id, "other", &file, "here").expect_err("another");
        assert_eq!(error.code(), ErrorCode::WrongCluster);
        let other = CheckpointId::new(1, Epoch(8));
        let error = Manifest::decode(other, "words", &file, "here").expect_err("another");
        assert_eq!(error.code(), ErrorCode::CheckpointDamaged);
        let later = [b"ardea checkpoint 2", &file[b"ardea checkpoint 1".len()..]].concat();
        let error = decode(&later).expect_err("later");
        assert_eq!(error.code(), ErrorCode::VersionMismatch);
    }
}
