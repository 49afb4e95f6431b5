//! Worker manifests: files that list the snapshots of a worker's instances at an epoch, beside the
//! snapshots' blocks.
//!
//! The leader merges the worker manifests of all workers into the checkpoint's manifest. The job's
//! record contains only their file names, so the record's size does not depend on the size of the
//! state. A worker manifest is needed until the checkpoint is written. The manifest of a finished
//! worker is needed until the end of its attempt.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::store::{CheckpointId, FileName, ObjectStore, StateHandle, Unsealed, seal, unseal};
use ardea_core::{Epoch, Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

const KIND: &str = "ardea part";
const FORMAT: &str = "1";

/// The list of a worker's snapshots at an epoch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerManifest {
    pub(crate) job: String,
    /// The snapshots of all instances of the worker.
    pub(crate) snapshots: Vec<StateHandle>,
    /// By vertex, the time that its slowest instance in this worker blocked inputs for alignment.
    pub(crate) aligned_micros: BTreeMap<String, u64>,
}

/// The epochs that a worker manifest belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum WorkerManifestKind {
    /// Only the epoch in its name.
    Snapshot,
    /// All epochs from the one in its name on: the worker has finished.
    Last,
}

/// The file name of a worker manifest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct WorkerManifestName {
    pub(crate) kind: WorkerManifestKind,
    /// The checkpoint that the manifest was written for.
    pub(crate) checkpoint: CheckpointId,
    pub(crate) container: u32,
    /// A number that distinguishes two processes that both act as this worker.
    pub(crate) writer: u64,
}

impl WorkerManifestName {
    /// Returns the file name as text.
    fn text(&self) -> String {
        let WorkerManifestName {
            kind,
            checkpoint: CheckpointId { generation, epoch },
            container,
            writer,
        } = self;
        let word = match kind {
            WorkerManifestKind::Snapshot => "part",
            WorkerManifestKind::Last => "last",
        };
        let epoch = epoch.0;
        format!("{word}-{generation}-{epoch}-{container}-{writer:016x}.receipts")
    }

    pub(crate) fn file(&self) -> Result<FileName> {
        FileName::new(self.text())
            .ok_or_else(|| Error::new(ErrorCode::Internal, "a part has no name"))
    }

    /// Encodes the name for an acknowledgement.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        self.text().into_bytes()
    }

    /// Decodes the name from an acknowledgement.
    ///
    /// # Errors
    /// `BadMessage` if `bytes` are not the name of a worker manifest.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let found = std::str::from_utf8(bytes)
            .ok()
            .and_then(WorkerManifestName::parse);
        found.ok_or_else(|| {
            Error::new(ErrorCode::BadMessage, "a worker's receipt names no file")
                .hint("start all processes of the job from the same version")
        })
    }

    /// Parses the file name of a worker manifest; `None` if `text` is not such a name in canonical
    /// form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_suffix(".receipts")?.split('-');
        let kind = match parts.next()? {
            "part" => WorkerManifestKind::Snapshot,
            "last" => WorkerManifestKind::Last,
            _ => return None,
        };
        let generation = parts.next()?.parse().ok()?;
        let epoch = Epoch(parts.next()?.parse().ok()?);
        let found = WorkerManifestName {
            kind,
            checkpoint: CheckpointId::new(generation, epoch),
            container: parts.next()?.parse().ok()?,
            writer: u64::from_str_radix(parts.next()?, 16).ok()?,
        };
        (found.text() == text).then_some(found)
    }
}

impl fmt::Display for WorkerManifestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// Returns a number unique to this process.
pub(crate) fn fresh_writer() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

impl WorkerManifest {
    /// Writes the manifest durably, as the file `name`.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn write(&self, folder: &dyn ObjectStore, name: WorkerManifestName) -> Result<()> {
        let body = serde_json::to_vec(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "receipts can't be written").because(error)
        })?;
        folder.write(&name.file()?, &seal(KIND, FORMAT, &body))
    }

    /// Reads the manifest of a worker of this job.
    ///
    /// # Errors
    /// `CheckpointDamaged` if the file is missing or damaged; `VersionMismatch`; those of the
    /// store.
    pub(crate) fn read(
        folder: &dyn ObjectStore,
        name: WorkerManifestName,
        job: &str,
    ) -> Result<Self> {
        let place = folder.place();
        let wrong = |why: &str| {
            let what = format!("{name} in {place} {why}");
            Error::new(ErrorCode::CheckpointDamaged, what)
                .hint("check that all hosts see the same folder or bucket, and the disk of it")
        };
        let file = folder.read(&name.file()?)?;
        let file = file.ok_or_else(|| wrong("is not there"))?;
        let body = match unseal(KIND, FORMAT, &file) {
            Ok(body) => body,
            Err(Unsealed::Damaged) => return Err(wrong("is not as it was written")),
            Err(Unsealed::Version(version)) => {
                let what = format!("{name} in {place} is of version {version} of the format");
                return Err(Error::new(ErrorCode::VersionMismatch, what)
                    .hint("start all processes of the job from the same version"));
            }
        };
        let part: WorkerManifest =
            serde_json::from_slice(body).map_err(|_| wrong("is not as it was written"))?;
        match part.job == job {
            true => Ok(part),
            false => Err(wrong("is another job's")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn name() -> WorkerManifestName {
        WorkerManifestName {
            kind: WorkerManifestKind::Last,
            checkpoint: CheckpointId::new(3, Epoch(7)),
            container: 2,
            writer: 0xff,
        }
    }

    fn part() -> WorkerManifest {
        WorkerManifest {
            job: "words".into(),
            snapshots: Vec::new(),
            aligned_micros: BTreeMap::from([("count".to_string(), 12)]),
        }
    }

    #[test]
    fn a_part_is_found_by_the_name_in_its_receipt() {
        let folder = MemoryStore::new();
        part().write(&folder, name()).unwrap();
        let found = WorkerManifestName::from_bytes(&name().to_bytes()).unwrap();
        assert_eq!(found, name());
        assert_eq!(
            WorkerManifest::read(&folder, found, "words").unwrap(),
            part()
        );
        let error = WorkerManifest::read(&folder, found, "other").unwrap_err();
        assert_eq!(error.code(), ErrorCode::CheckpointDamaged);
    }

    #[test]
    fn names_that_are_only_like_those_of_parts_are_somebody_elses() {
        let good = name().to_string();
        assert_eq!(WorkerManifestName::parse(&good), Some(name()));
        for other in [
            "last-3-7-2-ff.receipts",
            "last-03-7-2-00000000000000ff.receipts",
            "first-3-7-2-00000000000000ff.receipts",
            "last-3-7-2-00000000000000ff-1.receipts",
            "last-3-7.receipts",
            "folder.probe",
        ] {
            assert_eq!(WorkerManifestName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_part_that_is_damaged_or_gone_is_told_by_its_name() {
        let folder = MemoryStore::new();
        let error = WorkerManifest::read(&folder, name(), "words").unwrap_err();
        assert!(error.to_string().contains("last-3-7-2"), "{error}");
        folder
            .write(&name().file().unwrap(), b"ardea part 1 xxh3 0\n{}")
            .unwrap();
        let error = WorkerManifest::read(&folder, name(), "words").unwrap_err();
        assert_eq!(error.code(), ErrorCode::CheckpointDamaged);
    }
}
