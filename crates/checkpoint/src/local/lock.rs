//! The lock on a job's directory: one process at a time owns it.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_filesystem::lacks_locks;

/// The name of the lock file. The file is never removed, since another process could have locked it
/// meanwhile.
const NAME: &str = "ardea.lock";

/// The suffix of the owner's description, if the owner locks the directory only to copy a
/// savepoint.
const SAVES: &str = ", writing a savepoint";

/// The time to wait for readers of the lock file, which share the lock for microseconds.
const MOST_LOOKING: Duration = Duration::from_secs(5);

/// The lock on a job's directory, held by this process. The kernel releases the lock when the
/// process ends for any reason.
#[derive(Debug)]
pub(crate) struct FolderLock {
    /// The open lock file, which holds the lock.
    _file: File,
}

impl FolderLock {
    /// Locks the directory for this process.
    ///
    /// # Errors
    /// `WrongState` with the description of the owner, if another process owns the directory;
    /// `StoreUnsuitable` if the file system has no locks; `WriteFailed` if locking fails for
    /// another reason.
    pub(crate) fn take(folder: &Path) -> Result<Self> {
        FolderLock::take_as(folder, "")
    }

    /// Locks the directory to copy a savepoint of a stopped job. Such an owner does not answer
    /// requests of other processes.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub(crate) fn take_to_save(folder: &Path) -> Result<Self> {
        FolderLock::take_as(folder, SAVES)
    }

    /// Returns true if the owner with this description only copies a savepoint.
    pub(crate) fn is_savepoint_only(holder: &str) -> bool {
        holder.ends_with(SAVES)
    }

    fn take_as(folder: &Path, what_for: &str) -> Result<Self> {
        let path = folder.join(NAME);
        let failed = |error: io::Error| {
            if let Some(error) = lacks_locks(&path, &error, "the folder of a job") {
                return error;
            }
            let what = format!("{} can't be locked", path.display());
            Error::new(ErrorCode::WriteFailed, what)
                .because(error)
                .hint("check the path and its permissions")
        };
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let mut file = file.map_err(failed)?;
        if !lock(&file).map_err(failed)? {
            let holder = text_of(&mut file).unwrap_or_default();
            return Err(taken(folder, holder.trim()));
        }
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(this_process(what_for).as_bytes()));
        // The description is for messages only: a full disk must not prevent the lock.
        drop(written);
        Ok(FolderLock { _file: file })
    }

    /// Returns the description of the process that owns the directory, if any. Changes nothing.
    pub(crate) fn holder(folder: &Path) -> Option<String> {
        let mut file = File::open(folder.join(NAME)).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                let holder = text_of(&mut file).unwrap_or_default();
                Some(holder.trim().to_string())
            }
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }
}

/// Locks the file. Returns false if another process owns the lock. Waits for readers, which share
/// the lock briefly in [`holder`](FolderLock::holder).
fn lock(file: &File) -> io::Result<bool> {
    let until = Instant::now() + MOST_LOOKING;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        match file.try_lock_shared() {
            Ok(()) if Instant::now() < until => file.unlock()?,
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) | Err(TryLockError::WouldBlock) => return Ok(false),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn taken(folder: &Path, holder: &str) -> Error {
    let whose = match holder {
        "" => "another process".to_string(),
        holder => format!("another process ({holder})"),
    };
    let what = format!("{} is in use by {whose}", folder.display());
    Error::new(ErrorCode::WrongState, what)
        .hint("wait until that has ended, or give this job a folder of its own")
}

fn text_of(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.take(1_000).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the description of this process, for the lock file. `what_for` is appended.
fn this_process(what_for: &str) -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_name);
    let name = name.map_or("a program".into(), |name| name.to_string_lossy());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let place = match host.trim() {
        "" => String::new(),
        host => format!(" on {host}"),
    };
    format!("{name}, process {}{place}{what_for}\n", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn who_comes_second_is_told_who_has_it_and_the_next_one_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(FolderLock::holder(folder.path()), None);
        let lock = FolderLock::take(folder.path()).unwrap();
        let error = FolderLock::take(folder.path()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongState);
        let process = format!("process {}", std::process::id());
        assert!(error.to_string().contains(&process), "{error}");
        let holder = FolderLock::holder(folder.path()).unwrap();
        assert!(holder.contains(&process), "{holder}");
        drop(lock);
        assert_eq!(FolderLock::holder(folder.path()), None);
        FolderLock::take(folder.path()).unwrap();
    }

    #[test]
    fn who_only_copies_a_savepoint_is_not_taken_for_a_job() {
        let folder = tempfile::tempdir().unwrap();
        let only_saves = || {
            let holder = FolderLock::holder(folder.path()).unwrap();
            FolderLock::is_savepoint_only(&holder)
        };
        let saving = FolderLock::take_to_save(folder.path()).unwrap();
        assert!(only_saves());
        drop(saving);
        let _job = FolderLock::take(folder.path()).unwrap();
        assert!(!only_saves());
    }

    #[test]
    fn who_looks_keeps_nobody_from_taking_it() {
        let folder = tempfile::tempdir().unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        FolderLock::holder(folder.path());
                    }
                });
            }
            for _ in 0..200 {
                drop(FolderLock::take(folder.path()).unwrap());
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
