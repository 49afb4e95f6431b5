//! A process's own part of a folder that several may share.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_core::{Error, ErrorCode, Result};

use crate::disk::failure::of_folder;

/// What the names of parts begin with.
const PART: &str = "state-";
/// In a part: locked for as long as its owner lives.
const LOCK: &str = "lock";
/// In the folder: locked while somebody makes or removes parts.
const DOOR: &str = "state.lock";

/// How many parts this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A part of a folder that nobody else uses; removed with everything in it when it is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    path: PathBuf,
    /// Locked.
    _lock: File,
}

impl Part {
    /// Makes one, and removes those whose owners are gone.
    pub(crate) fn make(folder: &Path) -> Result<Part> {
        Part::try_make(folder).map_err(|cause| of_folder(folder, cause))
    }

    fn try_make(folder: &Path) -> io::Result<Part> {
        fs::create_dir_all(folder)?;
        let door = File::create(folder.join(DOOR))?;
        door.lock()?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if is_part(&path) && is_left(&path) {
                // What can't be removed is in nobody's way.
                let _ = fs::remove_dir_all(&path);
            }
        }
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{PART}{}-{number}", std::process::id()));
        fs::create_dir(&path)?;
        let lock = File::create(path.join(LOCK))?;
        lock.lock()?;
        Ok(Part { path, _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes are free on its disk.
    pub(crate) fn free(&self) -> Result<u64> {
        let told = rustix::fs::statvfs(&self.path).map_err(|cause| {
            let what = format!("nobody says how much room {} has", self.path.display());
            Error::new(ErrorCode::ReadFailed, what).because(io::Error::from(cause))
        })?;
        Ok(told.f_bavail.saturating_mul(told.f_frsize))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // If that fails, the next process tries again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn is_part(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(PART)) && path.is_dir()
}

/// Whether nobody holds a part any more.
fn is_left(path: &Path) -> bool {
    match File::open(path.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        // Whoever made it did not come to lock it: only one process at a time makes parts.
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
        fs::write(left.join(LOCK), "").unwrap();
        fs::create_dir_all(&own).unwrap();
        let first = Part::make(folder.path()).unwrap();
        assert!(!left.exists() && own.exists());
        let second = Part::make(folder.path()).unwrap();
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
        let error = Part::make(&file.join("state")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WriteFailed);
        assert!(error.to_string().contains("file/state"), "{error}");
    }
}
