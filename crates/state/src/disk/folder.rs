//! Subfolders of a shared folder, one per process and store.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_core::{Error, ErrorCode, Result};

use crate::disk::failure::folder_error;

/// The name prefix of subfolders.
const SUBFOLDER_PREFIX: &str = "state-";
/// The lock file in a subfolder: locked as long as its owner lives.
const SUBFOLDER_LOCK: &str = "lock";
/// The lock file in the shared folder: locked while a process creates or removes subfolders.
const FOLDER_LOCK: &str = "state.lock";

/// Number of subfolders that this process has created.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// A subfolder with a single owner; deleted with its content when it is dropped.
#[derive(Debug)]
pub(crate) struct Subfolder {
    path: PathBuf,
    /// Holds the file lock.
    _lock: File,
}

impl Subfolder {
    /// Creates a subfolder, and removes those whose owners have ended.
    pub(crate) fn make(folder: &Path) -> Result<Subfolder> {
        Subfolder::try_make(folder).map_err(|cause| folder_error(folder, cause))
    }

    fn try_make(folder: &Path) -> io::Result<Subfolder> {
        fs::create_dir_all(folder)?;
        let door = File::create(folder.join(FOLDER_LOCK))?;
        door.lock()?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if is_subfolder(&path) && is_abandoned(&path) {
                // A subfolder that can't be removed does no harm.
                let _ = fs::remove_dir_all(&path);
            }
        }
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{SUBFOLDER_PREFIX}{}-{number}", std::process::id()));
        fs::create_dir(&path)?;
        let lock = File::create(path.join(SUBFOLDER_LOCK))?;
        lock.lock()?;
        Ok(Subfolder { path, _lock: lock })
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the free bytes on the disk of the subfolder.
    pub(crate) fn free(&self) -> Result<u64> {
        let told = rustix::fs::statvfs(&self.path).map_err(|cause| {
            let what = format!("cannot determine the free space of {}", self.path.display());
            Error::new(ErrorCode::ReadFailed, what).because(io::Error::from(cause))
        })?;
        Ok(told.f_bavail.saturating_mul(told.f_frsize))
    }
}

impl Drop for Subfolder {
    fn drop(&mut self) {
        // If the removal fails, the next process tries again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn is_subfolder(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(SUBFOLDER_PREFIX)) && path.is_dir()
}

/// Returns true if no process holds the lock of a subfolder.
fn is_abandoned(path: &Path) -> bool {
    match File::open(path.join(SUBFOLDER_LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        // Its owner ended before it created the lock file: only one process at a time creates
        // subfolders.
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_removed_and_what_a_live_one_has_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (left, own) = (folder.path().join("state-1-0"), folder.path().join("mine"));
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join(SUBFOLDER_LOCK), "").unwrap();
        fs::create_dir_all(&own).unwrap();
        let first = Subfolder::make(folder.path()).unwrap();
        assert!(!left.exists() && own.exists());
        let second = Subfolder::make(folder.path()).unwrap();
        assert!(first.path().exists() && second.path().exists());
        let path = first.path().to_path_buf();
        drop(first);
        assert!(!path.exists() && second.path().exists());
        assert!(second.free().unwrap() > 0);
    }

    #[test]
    fn a_folder_that_cannot_be_made_says_which() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Subfolder::make(&file.join("state")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WriteFailed);
        assert!(error.to_string().contains("file/state"), "{error}");
    }
}
