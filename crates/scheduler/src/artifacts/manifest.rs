//! The manifest of an unpacked package, from which later changes of the files are detected.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::artifacts::Digest;
use crate::artifacts::archive_writer::hash_file;

/// The entries of an unpacked package.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The digest of the package.
    pub package: Digest,
    /// The total size of the unpacked files, in bytes.
    pub bytes: u64,
    /// All entries, in the order of the package: folders before their contents.
    pub entries: Vec<ManifestEntry>,
}

/// A file, folder or link of an unpacked package.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// The entry's name within the package.
    pub name: String,
    /// The entry's kind: folder, link or file.
    #[serde(flatten)]
    pub kind: ManifestKind,
}

/// The kind of an entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ManifestKind {
    /// A folder.
    Folder,
    /// A symbolic link.
    Link {
        /// The link's target.
        target: String,
    },
    /// A file.
    File {
        /// The file's size in bytes.
        bytes: u64,
        /// The SHA-256 of the file's bytes.
        digest: Digest,
        /// True if the file is executable.
        executable: bool,
        /// The file's modification time after unpacking, in nanoseconds since 1970, by the file
        /// system's clock.
        modified_nanos: i64,
    },
}

/// The depth of a check of unpacked files against their manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// Compares kinds, sizes, times and permissions.
    Quick,
    /// Compares all bytes as well.
    Thorough,
}

impl Manifest {
    /// Returns a description of the first difference between `folder` and the manifest, if any.
    /// Additional files are ignored.
    pub(crate) fn differs(&self, folder: &Path, check: Check) -> Option<String> {
        self.entries.iter().find_map(|entry| {
            let why = match entry.differs(folder, check) {
                Ok(why) => why?.to_string(),
                Err(error) => error.to_string(),
            };
            Some(format!("{}: {why}", entry.name))
        })
    }
}

impl ManifestEntry {
    fn differs(&self, folder: &Path, check: Check) -> io::Result<Option<&'static str>> {
        let path = folder.join(&self.name);
        let metadata = fs::symlink_metadata(&path)?;
        Ok(match &self.kind {
            ManifestKind::Folder => (!metadata.is_dir()).then_some("it is no folder"),
            ManifestKind::Link { target } => {
                let is_same =
                    metadata.is_symlink() && fs::read_link(&path)?.as_os_str() == &**target;
                (!is_same).then_some("it is another link")
            }
            ManifestKind::File {
                bytes,
                digest,
                executable,
                modified_nanos,
            } => {
                if !metadata.is_file() || metadata.len() != *bytes {
                    Some("it has another size")
                } else if (metadata.mode() & 0o111 != 0) != *executable {
                    Some("it has other permissions")
                } else if self::modified_nanos(&metadata) != *modified_nanos {
                    Some("it was changed")
                } else if check == Check::Thorough && hash_file(&path)?.0 != *digest {
                    Some("it holds other bytes")
                } else {
                    None
                }
            }
        })
    }
}

pub(crate) fn modified_nanos(metadata: &Metadata) -> i64 {
    let seconds = metadata.mtime().saturating_mul(1_000_000_000);
    seconds.saturating_add(metadata.mtime_nsec())
}
