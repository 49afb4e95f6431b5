//! A temporary folder for packing. Folders left by a killed submitter are removed by the next one.
//!
//! A folder belongs to the process that holds the kernel's lock on it; the lock ends with the
//! process.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ardea_core::{Error, ErrorCode, Result};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

/// The prefix of the folders' names.
const PREFIX: &str = "ardea-packing-";

/// The age from which an unlocked folder is considered abandoned: a new one may not be locked yet.
const OLD: Duration = Duration::from_secs(60);

/// A temporary folder that is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct LockedTempDir {
    folder: TempDir,
    /// The folder's file handle, which holds the lock.
    _open: File,
}

impl LockedTempDir {
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Creates a new temporary folder, and removes this user's abandoned ones.
///
/// # Errors
/// [`ErrorCode::WriteFailed`] if it can't be created.
pub(super) fn folder() -> Result<LockedTempDir> {
    let among = std::env::temp_dir();
    sweep(&among, OLD);
    make(&among).map_err(|error| {
        Error::new(
            ErrorCode::WriteFailed,
            "cannot create a temporary folder for packing",
        )
        .because(error)
        .hint("check the free space and permissions of the folder for temporary files (TMPDIR)")
    })
}

fn make(among: &Path) -> std::io::Result<LockedTempDir> {
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(among)?;
    let open = File::open(folder.path())?;
    flock(&open, FlockOperation::NonBlockingLockExclusive)?;
    Ok(LockedTempDir {
        folder,
        _open: open,
    })
}

/// Removes unlocked folders older than `older`; errors are ignored.
fn sweep(among: &Path, older: Duration) {
    let entries = fs::read_dir(among).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes())
    });
    for path in named.map(|entry| entry.path()) {
        if let Some(_held) = left_behind(&path, older) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Locks and returns the folder's handle, if the folder is this user's, older than `older` and
/// unlocked.
fn left_behind(path: &PathBuf, older: Duration) -> Option<File> {
    // A symbolic link is not ours.
    let found = fs::symlink_metadata(path).ok()?;
    let age = SystemTime::now().duration_since(found.modified().ok()?);
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_dir() || !is_own || age.is_ok_and(|age| age < older) {
        return None;
    }
    let open = File::open(path).ok()?;
    flock(&open, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_submitter_left_is_removed_and_what_is_in_use_stays() {
        let among = tempfile::tempdir().unwrap();
        let left = among.path().join(format!("{PREFIX}left"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("package"), "half").unwrap();
        let used = make(among.path()).unwrap();
        let other = among.path().join("other");
        fs::create_dir(&other).unwrap();

        sweep(among.path(), Duration::from_secs(3_600));
        assert!(left.exists(), "it may be somebody's who is just beginning");
        sweep(among.path(), Duration::ZERO);
        assert!(!left.exists());
        assert!(used.path().exists() && other.exists());
        let path = used.path().to_path_buf();
        drop(used);
        assert!(!path.exists());
    }
}
