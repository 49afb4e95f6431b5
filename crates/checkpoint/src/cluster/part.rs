//! What a worker has saved of an epoch: the receipts of its instances' cuts, in a file beside their blocks.
//!
//! The master makes a manifest of the parts of all workers. In the job's record stands only the name of each, so that this stays small however
//! large the state is. A part is needed until there is the manifest; that of a worker which has come to its end, as long as its life of the job lasts.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::store::{CutReceipt, FileName, Folder, SnapshotId, Unsealed, seal, unseal};
use ardea_core::{Epoch, Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

const KIND: &str = "ardea part";
const FORMAT: &str = "1";

/// What a worker has saved of an epoch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The job's name.
    pub(crate) job: String,
    /// Of all instances of the worker.
    pub(crate) cuts: Vec<CutReceipt>,
    /// By vertex, for how long its slowest instance there had held inputs that were ahead.
    pub(crate) aligned_micros: BTreeMap<String, u64>,
}

/// Whether a part belongs to one epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum PartKind {
    /// To one.
    Cut,
    /// To all from that one on: the worker has come to its end.
    Last,
}

/// What the file of a part is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PartName {
    pub(crate) kind: PartKind,
    /// For which snapshot it was written.
    pub(crate) snapshot: SnapshotId,
    /// The container of the worker.
    pub(crate) container: u32,
    /// What tells apart two processes that take themselves for that worker.
    pub(crate) writer: u64,
}

impl PartName {
    /// The text of its file's name.
    fn text(&self) -> String {
        let PartName {
            kind,
            snapshot: SnapshotId { generation, epoch },
            container,
            writer,
        } = self;
        let word = match kind {
            PartKind::Cut => "part",
            PartKind::Last => "last",
        };
        let epoch = epoch.0;
        format!("{word}-{generation}-{epoch}-{container}-{writer:016x}.receipts")
    }

    /// Its file.
    pub(crate) fn file(&self) -> Result<FileName> {
        FileName::new(self.text())
            .ok_or_else(|| Error::new(ErrorCode::Internal, "a part has no name"))
    }

    /// As it stands in a receipt.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        self.text().into_bytes()
    }

    /// From a receipt.
    ///
    /// # Errors
    /// `BadMessage` if it is no name of a part.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let found = std::str::from_utf8(bytes).ok().and_then(PartName::parse);
        found.ok_or_else(|| {
            Error::new(ErrorCode::BadMessage, "a worker's receipt names no file")
                .hint("start all processes of the job from the same version")
        })
    }

    /// What part has exactly this name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_suffix(".receipts")?.split('-');
        let kind = match parts.next()? {
            "part" => PartKind::Cut,
            "last" => PartKind::Last,
            _ => return None,
        };
        let generation = parts.next()?.parse().ok()?;
        let epoch = Epoch(parts.next()?.parse().ok()?);
        let found = PartName {
            kind,
            snapshot: SnapshotId::new(generation, epoch),
            container: parts.next()?.parse().ok()?,
            writer: u64::from_str_radix(parts.next()?, 16).ok()?,
        };
        (found.text() == text).then_some(found)
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// A number that no other process has.
pub(crate) fn fresh_writer() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

impl Part {
    /// Writes it, durably.
    ///
    /// # Errors
    /// What the folder returns.
    pub(crate) fn write(&self, folder: &dyn Folder, name: PartName) -> Result<()> {
        let body = serde_json::to_vec(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "receipts can't be written").because(error)
        })?;
        folder.write(&name.file()?, &seal(KIND, FORMAT, &body))
    }

    /// Reads what a worker of this job has written.
    ///
    /// # Errors
    /// `SnapshotDamaged` if it isn't there, or not as it was written; `VersionMismatch`; what the folder returns.
    pub(crate) fn read(folder: &dyn Folder, name: PartName, job: &str) -> Result<Self> {
        let place = folder.place();
        let wrong = |why: &str| {
            let what = format!("{name} in {place} {why}");
            Error::new(ErrorCode::SnapshotDamaged, what)
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
        let part: Part =
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
    use crate::store::MemoryFolder;

    fn name() -> PartName {
        PartName {
            kind: PartKind::Last,
            snapshot: SnapshotId::new(3, Epoch(7)),
            container: 2,
            writer: 0xff,
        }
    }

    fn part() -> Part {
        Part {
            job: "words".into(),
            cuts: Vec::new(),
            aligned_micros: BTreeMap::from([("count".to_string(), 12)]),
        }
    }

    #[test]
    fn a_part_is_found_by_the_name_in_its_receipt() {
        let folder = MemoryFolder::new();
        part().write(&folder, name()).unwrap();
        let found = PartName::from_bytes(&name().to_bytes()).unwrap();
        assert_eq!(found, name());
        assert_eq!(Part::read(&folder, found, "words").unwrap(), part());
        let error = Part::read(&folder, found, "other").unwrap_err();
        assert_eq!(error.code(), ErrorCode::SnapshotDamaged);
    }

    #[test]
    fn names_that_are_only_like_those_of_parts_are_somebody_elses() {
        let good = name().to_string();
        assert_eq!(PartName::parse(&good), Some(name()));
        for other in [
            "last-3-7-2-ff.receipts",
            "last-03-7-2-00000000000000ff.receipts",
            "first-3-7-2-00000000000000ff.receipts",
            "last-3-7-2-00000000000000ff-1.receipts",
            "last-3-7.receipts",
            "folder.probe",
        ] {
            assert_eq!(PartName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_part_that_is_damaged_or_gone_is_told_by_its_name() {
        let folder = MemoryFolder::new();
        let error = Part::read(&folder, name(), "words").unwrap_err();
        assert!(error.to_string().contains("last-3-7-2"), "{error}");
        folder
            .write(&name().file().unwrap(), b"ardea part 1 xxh3 0\n{}")
            .unwrap();
        let error = Part::read(&folder, name(), "words").unwrap_err();
        assert_eq!(error.code(), ErrorCode::SnapshotDamaged);
    }
}
