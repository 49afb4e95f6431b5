//! Unpacking of packages. For any contents, only one folder is written to, and the limits are
//! enforced.
//!
//! The tar is read record by record (`raw`), so that long names are limited as well. Each folder
//! above an entry must have been created by the unpacking. An entry behind a link, or an entry that
//! replaces another, is refused.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};
use tar::EntryType;

use crate::artifacts::contents::refused;
use crate::artifacts::digest::Hasher;
use crate::artifacts::entry_name::{check_link, entry_name};
use crate::artifacts::failure::{too_large, unwritable};
use crate::artifacts::manifest::modified_nanos;
use crate::artifacts::{Digest, Limits, Manifest, ManifestEntry, ManifestKind};

/// The maximum number of bytes of a name that are read.
const MOST_NAME_BYTES: u64 = 4_097;

/// Unpacks the package with this digest into `folder`, which has to exist and be empty. Blocks.
///
/// The caller must have verified the digest. Unpacked files are readable and not writable, and they
/// are executable if they were when packed.
///
/// # Errors
/// [`PackageCorrupt`](ErrorCode::PackageCorrupt) for a package that is no compressed tar,
/// [`PackageRefused`](ErrorCode::PackageRefused) for entries that lead out of the folder, are no
/// file, folder or link, or exceed the limits; [`WriteFailed`](ErrorCode::WriteFailed),
/// [`DiskFull`](ErrorCode::DiskFull). Entries unpacked before the error remain in `folder`.
pub fn unpack(
    package: impl Read,
    digest: &Digest,
    folder: &Path,
    limits: &Limits,
) -> Result<Manifest> {
    let decoder = zstd::Decoder::new(package).map_err(|error| corrupt(digest, error))?;
    let mut archive = tar::Archive::new(decoder);
    let entries = archive.entries().map_err(|error| corrupt(digest, error))?;
    let mut unpacking = Unpacking {
        digest,
        folder,
        limits,
        folders: HashSet::new(),
        bytes: 0,
        entries: Vec::new(),
    };
    let (mut long_name, mut long_target) = (None, None);
    for entry in entries.raw(true) {
        let mut entry = entry.map_err(|error| corrupt(digest, error))?;
        match entry.header().entry_type() {
            EntryType::GNULongName => long_name = Some(long_text(&mut entry, digest)?),
            EntryType::GNULongLink => long_target = Some(long_text(&mut entry, digest)?),
            kind => {
                let name = match long_name.take() {
                    Some(name) => name,
                    None => text(&entry.path_bytes())?,
                };
                let target = match long_target.take() {
                    Some(target) => Some(target),
                    None => entry
                        .link_name_bytes()
                        .map(|bytes| text(&bytes))
                        .transpose()?,
                };
                unpacking.entry(kind, &name, target.as_deref(), &mut entry)?;
            }
        }
    }
    Ok(Manifest {
        package: *digest,
        bytes: unpacking.bytes,
        entries: unpacking.entries,
    })
}

struct Unpacking<'a> {
    digest: &'a Digest,
    folder: &'a Path,
    limits: &'a Limits,
    /// The folders created by this unpacking.
    folders: HashSet<String>,
    bytes: u64,
    entries: Vec<ManifestEntry>,
}

impl Unpacking<'_> {
    fn entry<R: Read>(
        &mut self,
        kind: EntryType,
        name: &str,
        target: Option<&str>,
        entry: &mut tar::Entry<'_, R>,
    ) -> Result<()> {
        // The entry is the top folder, as other tar programs write it.
        if kind == EntryType::Directory && matches!(name, "." | "./") {
            return Ok(());
        }
        let name = entry_name(name).map_err(|why| refused(name, why))?;
        self.make_folders_above(&name)?;
        match kind {
            EntryType::Directory => self.make_folder(&name),
            EntryType::Regular => {
                let mode = entry
                    .header()
                    .mode()
                    .map_err(|error| corrupt(self.digest, error))?;
                self.make_file(&name, mode & 0o111 != 0, entry)
            }
            EntryType::Symlink => self.make_link(&name, target.unwrap_or_default()),
            EntryType::XHeader | EntryType::XGlobalHeader => Err(refused(
                &name,
                "the tar has extended headers (pax); pack it as GNU tar, or with Ardea",
            )),
            _ => Err(refused(
                &name,
                "it is neither a file, nor a folder, nor a link",
            )),
        }
    }

    fn make_folders_above(&mut self, name: &str) -> Result<()> {
        for (at, _) in name.match_indices('/') {
            if !self.folders.contains(&name[..at]) {
                self.make_folder(&name[..at])?;
            }
        }
        Ok(())
    }

    fn make_folder(&mut self, name: &str) -> Result<()> {
        if self.folders.contains(name) {
            return Ok(());
        }
        let path = self.folder.join(name);
        DirBuilder::new()
            .mode(0o755)
            .create(&path)
            .map_err(|error| in_the_way(name, &path, error))?;
        self.folders.insert(name.to_string());
        self.done(name, ManifestKind::Folder)
    }

    fn make_link(&mut self, name: &str, target: &str) -> Result<()> {
        check_link(name, target).map_err(|why| refused(name, why))?;
        let path = self.folder.join(name);
        std::os::unix::fs::symlink(target, &path)
            .map_err(|error| in_the_way(name, &path, error))?;
        let target = target.to_string();
        self.done(name, ManifestKind::Link { target })
    }

    fn make_file(&mut self, name: &str, executable: bool, content: &mut impl Read) -> Result<()> {
        let path = self.folder.join(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| in_the_way(name, &path, error))?;
        let (bytes, digest) = self.copy(content, &mut file, &path)?;
        let mode = if executable { 0o555 } else { 0o444 };
        let settled = file
            .set_permissions(fs::Permissions::from_mode(mode))
            .and_then(|()| file.metadata());
        let metadata = settled.map_err(|error| unwritable(&path, error))?;
        let kind = ManifestKind::File {
            bytes,
            digest,
            executable,
            modified_nanos: modified_nanos(&metadata),
        };
        self.done(name, kind)
    }

    fn copy(&mut self, from: &mut impl Read, to: &mut File, path: &Path) -> Result<(u64, Digest)> {
        let mut hasher = Hasher::default();
        let mut part = vec![0; 64 << 10];
        let before = self.bytes;
        loop {
            let read = match from.read(&mut part) {
                Ok(0) => return Ok((self.bytes - before, hasher.finish())),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(corrupt(self.digest, error)),
            };
            self.bytes += read as u64;
            if self.bytes > self.limits.unpacked_bytes {
                let what = format!("package {} unpacks to more bytes", self.digest);
                return Err(too_large(&what, self.limits.unpacked_bytes));
            }
            hasher.update(&part[..read]);
            to.write_all(&part[..read])
                .map_err(|error| unwritable(path, error))?;
        }
    }

    fn done(&mut self, name: &str, kind: ManifestKind) -> Result<()> {
        let name = name.to_string();
        self.entries.push(ManifestEntry { name, kind });
        if self.entries.len() as u64 > self.limits.entries {
            let what = format!("package {} has more entries", self.digest);
            return Err(too_large(&what, self.limits.entries));
        }
        Ok(())
    }
}

/// Reads a name or link target that is too long for a tar header. The text ends at a zero byte.
fn long_text(entry: &mut impl Read, digest: &Digest) -> Result<String> {
    let mut bytes = Vec::new();
    entry
        .take(MOST_NAME_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| corrupt(digest, error))?;
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    text(&bytes)
}

fn text(bytes: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(bytes);
    text.map(str::to_string).map_err(|_| {
        refused(
            &String::from_utf8_lossy(bytes),
            "its name is not valid UTF-8",
        )
    })
}

/// Creates the error for an entry whose path exists already: the package has two entries of one
/// name, or an entry behind a link.
fn in_the_way(name: &str, path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => refused(name, "something else has its name"),
        io::ErrorKind::NotADirectory => refused(name, "its parent is no folder"),
        _ => unwritable(path, error),
    }
}

fn corrupt(digest: &Digest, error: io::Error) -> Error {
    Error::new(
        ErrorCode::PackageCorrupt,
        format!("package {digest} is no complete tar compressed by zstd"),
    )
    .because(error)
    .hint("put it into the store again")
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
