//! Locks between processes: files locked by the kernel.
//!
//! The exclusive holder of a lock may remove the lock's file. Another process may then lock a new
//! file of the same name. So a lock is valid only if its file still has the name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_core::Result;
use tokio::time::sleep;

use crate::artifacts::failure::unwritable;

/// The mode of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// Shared with other shared holders.
    Shared,
    /// Held by one holder only.
    Exclusive,
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    /// Waits for the lock at `path`, polling every 5 to 50 ms.
    pub(super) async fn take(path: PathBuf, sharing: Sharing) -> Result<Self> {
        let mut pause = Duration::from_millis(5);
        loop {
            match Lock::try_take(&path, sharing) {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) => {}
                Err(error) => return Err(unwritable(&path, error)),
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Acquires the lock at `path` if it is free, or returns `None`.
    pub(super) fn try_take(path: &Path, sharing: Sharing) -> io::Result<Option<Self>> {
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            let locked = match sharing {
                Sharing::Shared => file.try_lock_shared(),
                Sharing::Exclusive => file.try_lock(),
            };
            match locked {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let own = file.metadata()?;
            match fs::metadata(path) {
                Ok(named) if (named.dev(), named.ino()) == (own.dev(), own.ino()) => {
                    return Ok(Some(Lock(file)));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the locked file.
    pub(super) fn file(&self) -> &File {
        &self.0
    }
}
