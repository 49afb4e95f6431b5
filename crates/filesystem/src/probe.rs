//! Probes of the features of a file system.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

use crate::{FileSystem, System};

/// A feature of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Feature {
    /// A file can be created only if it does not exist (`O_EXCL`).
    ExclusiveCreate,
    /// The advisory lock of a file (`flock`) excludes other handles.
    Locks,
    /// A file can be renamed and stays the same file.
    Rename,
    /// A file can be renamed only if the new name is free.
    RenameToFree,
    /// The content of a file can be synced to the disk (`fsync`).
    Sync,
    /// The names in a folder can be synced to the disk.
    FolderSync,
}

impl Feature {
    fn name(self) -> &'static str {
        match self {
            Feature::ExclusiveCreate => "exclusive creation of files (O_EXCL)",
            Feature::Locks => "file locks (flock)",
            Feature::Rename => "renames that keep the file",
            Feature::RenameToFree => "renames that replace nothing, nor hard links",
            Feature::Sync => "fsync of files",
            Feature::FolderSync => "fsync of folders",
        }
    }
}

/// Checks that the file system of `folder` has these features, with small files that are removed
/// again. A missing folder is not created: the nearest existing parent is probed. `what_for` names
/// the part that needs the features, such as `the output of a job`.
///
/// # Errors
/// [`ErrorCode::StoreUnsuitable`] with the missing feature; [`ErrorCode::WriteFailed`] if no file
/// can be written there.
pub fn probe(folder: &Path, features: &[Feature], what_for: &str) -> Result<()> {
    probe_with(&System, folder, features, what_for)
}

/// Probes like [`probe`], with other file system calls.
///
/// # Errors
/// As [`probe`].
pub fn probe_with(
    calls: &impl FileSystem,
    folder: &Path,
    features: &[Feature],
    what_for: &str,
) -> Result<()> {
    let there = existing(folder);
    remove_stale(&there);
    let names = ProbeFiles::new(&there);
    let found = try_features(calls, &there, &names, features);
    for name in names.all() {
        // A file that is missing or cannot be removed does no harm.
        let _ = calls.remove(name);
    }
    found.map_err(|failure| match failure {
        Failure::Unwritable(error) => unwritable(&there, error),
        Failure::Lacking(feature, why) => lacking(&there, feature, what_for, why),
    })
}

/// Returns the error for a file system without locks if `error`, the result of locking the file at
/// `path`, means that. Returns `None` for other errors.
pub fn lacks_locks(path: &Path, error: &io::Error, what_for: &str) -> Option<Error> {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error)?;
    let has_none = [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK].contains(&errno);
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    has_none.then(|| {
        lacking(
            folder,
            Feature::Locks,
            what_for,
            Symptom::Reported(errno.into()),
        )
    })
}

enum Failure {
    /// No file can be written, for a reason unrelated to the features.
    Unwritable(io::Error),
    Lacking(Feature, Symptom),
}

/// The symptom of a missing feature.
enum Symptom {
    Reported(io::Error),
    Behavior(&'static str),
}

fn unwritable(folder: &Path, error: io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::DiskFull,
        _ => ErrorCode::WriteFailed,
    };
    Error::new(code, format!("cannot write in {}", folder.display()))
        .because(error)
        .hint("check the path, its permissions, and the free space on the disk")
}

fn lacking(folder: &Path, feature: Feature, what_for: &str, why: Symptom) -> Error {
    let what = format!(
        "the file system of {} has no {}, which {what_for} needs",
        folder.display(),
        feature.name()
    );
    let error = Error::new(ErrorCode::StoreUnsuitable, what);
    let error = match why {
        Symptom::Reported(said) => error.because(said),
        Symptom::Behavior(done) => error.because(done),
    };
    error.hint("name a folder on a local disk, or on a shared file system that has it, such as NFS 4 mounted with locks")
}

/// Returns the folder, or its nearest existing parent.
fn existing(folder: &Path) -> PathBuf {
    let found = folder
        .ancestors()
        .find(|folder| !folder.as_os_str().is_empty() && folder.is_dir());
    found.unwrap_or(Path::new(".")).to_path_buf()
}

/// Returns true for the name of a file written by [`probe`]. A folder with only such files counts
/// as empty.
pub fn is_probe_file(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(".part"))
}

/// Removes the files of probes whose processes were killed: files older than [`STALE`].
fn remove_stale(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let is_probe = is_probe_file(&entry.file_name());
        let modified = || entry.metadata().and_then(|found| found.modified()).ok();
        if is_probe && modified().is_some_and(|time| time.elapsed().is_ok_and(|age| age > STALE)) {
            // The next probe retries a failed removal.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

struct ProbeFiles {
    first: PathBuf,
    second: PathBuf,
    third: PathBuf,
}

impl ProbeFiles {
    fn new(folder: &Path) -> Self {
        let token = ardea_core::unique_number();
        let name = |number: u8| folder.join(format!("{PREFIX}{token:016x}-{number}.part"));
        ProbeFiles {
            first: name(1),
            second: name(2),
            third: name(3),
        }
    }

    fn all(&self) -> [&Path; 3] {
        [&self.first, &self.second, &self.third]
    }
}

const PREFIX: &str = ".ardea-probe-";

/// The age from which a probe's file counts as left by a killed process; no probe takes an hour.
const STALE: Duration = Duration::from_secs(60 * 60);

const CONTENT: &[u8] = b"a probe of this file system, which may be removed\n";

fn try_features(
    calls: &impl FileSystem,
    folder: &Path,
    names: &ProbeFiles,
    features: &[Feature],
) -> std::result::Result<(), Failure> {
    let has = |feature| features.contains(&feature);
    let file = calls
        .create_new(&names.first)
        .map_err(Failure::Unwritable)?;
    calls.write(&file, CONTENT).map_err(Failure::Unwritable)?;
    if has(Feature::ExclusiveCreate) {
        is_exclusive(calls, &names.first)?;
    }
    if has(Feature::Locks) {
        try_locks(calls, &file, &names.first)?;
    }
    if has(Feature::Sync) {
        let synced = calls.sync(&file);
        synced.map_err(|error| refused(Feature::Sync, error))?;
    }
    if has(Feature::Rename) {
        try_rename(calls, &file, names)?;
    }
    if has(Feature::RenameToFree) {
        try_rename_to_free(calls, names)?;
    }
    if has(Feature::FolderSync) {
        let synced = calls.sync_folder(folder);
        synced.map_err(|error| refused(Feature::FolderSync, error))?;
    }
    Ok(())
}

/// Converts an error to a failure. A full disk is not a missing feature.
fn refused(feature: Feature, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Failure::Unwritable(error),
        _ => Failure::Lacking(feature, Symptom::Reported(error)),
    }
}

fn is_exclusive(calls: &impl FileSystem, path: &Path) -> std::result::Result<(), Failure> {
    let feature = Feature::ExclusiveCreate;
    match calls.create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(refused(feature, error)),
        Ok(_) => Err(Failure::Lacking(
            feature,
            Symptom::Behavior("an existing file was created again"),
        )),
    }
}

fn try_locks(
    calls: &impl FileSystem,
    file: &File,
    path: &Path,
) -> std::result::Result<(), Failure> {
    let feature = Feature::Locks;
    let is_locked = calls
        .try_lock(file)
        .map_err(|error| refused(feature, error))?;
    if !is_locked {
        return Err(Failure::Lacking(
            feature,
            Symptom::Behavior("a new file is locked"),
        ));
    }
    let other = calls.open(path).map_err(Failure::Unwritable)?;
    let is_locked_again = calls
        .try_lock(&other)
        .map_err(|error| refused(feature, error))?;
    match is_locked_again {
        false => Ok(()),
        true => Err(Failure::Lacking(
            feature,
            Symptom::Behavior("a lock was acquired twice"),
        )),
    }
}

fn try_rename(
    calls: &impl FileSystem,
    file: &File,
    names: &ProbeFiles,
) -> std::result::Result<(), Failure> {
    let feature = Feature::Rename;
    let failed = |error| refused(feature, error);
    let renamed = calls
        .create_new(&names.second)
        .map_err(Failure::Unwritable)
        .and_then(|_| calls.rename(&names.first, &names.second).map_err(failed));
    renamed?;
    let (ours, its) = (file.metadata(), names.second.metadata());
    let (ours, its) = (ours.map_err(Failure::Unwritable)?, its.map_err(failed)?);
    if (ours.dev(), ours.ino()) != (its.dev(), its.ino()) || names.first.exists() {
        let done = "the renamed file is a copy";
        return Err(Failure::Lacking(feature, Symptom::Behavior(done)));
    }
    Ok(())
}

fn try_rename_to_free(
    calls: &impl FileSystem,
    names: &ProbeFiles,
) -> std::result::Result<(), Failure> {
    let feature = Feature::RenameToFree;
    let failed = |error| refused(feature, error);
    let (from, taken) = (
        &names.third,
        match names.second.exists() {
            true => &names.second,
            false => &names.first,
        },
    );
    calls.create_new(from).map_err(Failure::Unwritable)?;
    if calls.rename_to_free(from, taken).map_err(failed)? {
        let done = "a file was replaced";
        return Err(Failure::Lacking(feature, Symptom::Behavior(done)));
    }
    calls.remove(taken).map_err(Failure::Unwritable)?;
    match calls.rename_to_free(from, taken).map_err(failed)? {
        true => Ok(()),
        false => Err(Failure::Lacking(
            feature,
            Symptom::Behavior("a free name was reported as taken"),
        )),
    }
}

#[cfg(test)]
mod tests;
