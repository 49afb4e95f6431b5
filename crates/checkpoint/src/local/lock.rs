//! One process at a time has a job's folder.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_filesystem::lacks_locks;

/// The file whose lock it is. It stays: whoever removed it might remove another's.
const NAME: &str = "ardea.lock";

/// What a process says of itself behind its name that has the folder only as long as it copies a savepoint of it.
const SAVES: &str = ", writing a savepoint";

/// For how long those who only look may be in the way of who takes the folder. One look takes microseconds.
const MOST_LOOKING: Duration = Duration::from_secs(5);

/// Held for as long as this process has the folder. The kernel lets go of it when the process ends, however that happens.
#[derive(Debug)]
pub(crate) struct FolderLock {
    /// Its lock goes with it.
    _file: File,
}

impl FolderLock {
    /// Takes the folder for this process.
    ///
    /// # Errors
    /// `WrongState` if another process has it, with what that has said of itself; `StoreUnsuitable` if its file system has no locks, `WriteFailed`
    /// if it can't be locked for another reason.
    pub(crate) fn take(folder: &Path) -> Result<Self> {
        FolderLock::take_as(folder, "")
    }

    /// The same, to copy a savepoint of a job that doesn't run, and not to run it: nobody answers then who asks the job for something.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(crate) fn take_to_save(folder: &Path) -> Result<Self> {
        FolderLock::take_as(folder, SAVES)
    }

    /// Whether who has the folder, in its own words, only copies a savepoint of it.
    pub(crate) fn only_saves(holder: &str) -> bool {
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
        // Who holds it is told to people only: a full disk keeps nobody from holding it.
        drop(written);
        Ok(FolderLock { _file: file })
    }

    /// Who has the folder, if anybody has it; changes nothing.
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

/// Locks the file; false if another process has. Who [looks](FolderLock::holder) shares the lock for a moment: that is waited for.
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

/// What this process says of itself.
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
            FolderLock::only_saves(&holder)
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
