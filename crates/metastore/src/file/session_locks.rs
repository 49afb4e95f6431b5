//! Sessions as locked files: the owner holds a lock, which the kernel releases when the owner dies.
//!
//! A lock (`flock`) belongs to the open file, so it is released when the process ends, even by
//! `kill -9`, and there is no risk of reused process ids. A session's file gets its name only after
//! it is locked, so an unlocked file always means a dead session. The kernel closes the file last,
//! which wakes all watchers of the folder.

use crate::SessionId;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folder of the sessions of one root.
#[derive(Clone, Debug)]
pub(super) struct SessionLocks(PathBuf);

/// A session's file, locked by this process.
#[derive(Debug)]
pub(super) struct SessionLock {
    file: File,
    path: PathBuf,
}

impl SessionLocks {
    /// Creates the handle of a folder.
    pub(super) fn new(folder: PathBuf) -> Self {
        SessionLocks(folder)
    }

    /// Returns the folder.
    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// Begins a session; `scratch` is the path of a new file outside of the folder.
    pub(super) fn begin(&self, id: &SessionId, scratch: &Path) -> io::Result<SessionLock> {
        let file = File::options().write(true).create_new(true).open(scratch)?;
        file.try_lock()?;
        let path = self.0.join(id.as_str());
        std::fs::rename(scratch, &path)?;
        Ok(SessionLock { file, path })
    }

    /// Returns true if the session's owner is alive.
    pub(super) fn is_alive(&self, id: &SessionId) -> io::Result<bool> {
        is_locked(&self.0.join(id.as_str()))
    }

    /// Returns the files of sessions whose owners are dead.
    pub(super) fn dead(&self) -> io::Result<Vec<PathBuf>> {
        let mut dead = Vec::new();
        for file in std::fs::read_dir(&self.0)? {
            let path = file?.path();
            if !is_locked(&path)? {
                dead.push(path);
            }
        }
        Ok(dead)
    }
}

/// Returns true if the file is locked. The check can't interfere with the owner, which has its lock
/// already.
fn is_locked(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl SessionLock {
    /// Returns true if the session's file still exists and is the locked one: an administrator ends
    /// a session by deleting its file.
    pub(super) fn is_known(&self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the session's file, after which the session is dead for all processes.
    pub(super) fn end(&self) -> io::Result<()> {
        if self.is_known()? {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_lives_as_long_as_its_file_is_held() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("sessions");
        std::fs::create_dir(&inner).expect("a folder in it");
        let lives = SessionLocks::new(inner);
        let id = SessionId::new("1-1");
        assert!(!lives.is_alive(&id).expect("looked"));

        let life = lives.begin(&id, &folder.path().join("new")).expect("begun");
        assert!(lives.is_alive(&id).expect("looked"));
        assert!(life.is_known().expect("looked"));
        assert!(lives.dead().expect("looked").is_empty());

        drop(life);
        assert!(!lives.is_alive(&id).expect("looked"));
        assert_eq!(lives.dead().expect("looked").len(), 1);
    }
}
