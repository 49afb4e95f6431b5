//! What was unpacked of a package, so that it can be seen later whether it is still so.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::artifacts::Digest;
use crate::artifacts::packed::hash_file;

/// What was unpacked of a package.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The package.
    pub package: Digest,
    /// The bytes of all files.
    pub bytes: u64,
    /// Everything, in the order of the package: folders before what is in them.
    pub entries: Vec<ManifestEntry>,
}

/// A file, folder or link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// Its name within the package.
    pub name: String,
    /// What it is.
    #[serde(flatten)]
    pub kind: ManifestKind,
}

/// What an entry is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ManifestKind {
    /// A folder.
    Folder,
    /// A link.
    Link {
        /// Where it leads.
        target: String,
    },
    /// A file.
    File {
        /// Its size.
        bytes: u64,
        /// The SHA-256 of its bytes.
        digest: Digest,
        /// Whether it may be run.
        executable: bool,
        /// When it was unpacked, in nanoseconds since 1970, by the file system's clock.
        modified_nanos: i64,
    },
}

/// How closely to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// At kinds, sizes, times and permissions.
    Quick,
    /// At each byte as well.
    Thorough,
}

impl Manifest {
    /// What in `folder` is not as it was unpacked, if anything. What came besides is not looked at.
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
