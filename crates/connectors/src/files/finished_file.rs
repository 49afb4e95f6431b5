//! A complete part file that is about to be renamed to its final path.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Result};
use ardea_filesystem::{Permissions, Shown, rename_to_free};

use super::part_file::{cannot_lock, cannot_write, is_named, part_options};

/// A complete part file.
pub(super) struct FinishedFile {
    pub path: PathBuf,
    pub part: PathBuf,
    /// The open part. Its lock shows other processes that it is not a leftover of an earlier run.
    file: File,
}

impl FinishedFile {
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if another file now has the part's name.
    pub fn new(path: PathBuf, part: PathBuf, file: File) -> Result<Self> {
        if !is_named(&file, &part).map_err(|error| cannot_write(&path, error))? {
            let what = format!(
                "{} was replaced or removed while it was written",
                part.shown()
            );
            return Err(Error::new(ErrorCode::WriteFailed, what).hint("give each job its own path"));
        }
        Ok(FinishedFile { path, part, file })
    }

    /// Reopens a part of `length` bytes left by an earlier attempt. Returns `None` if the part is
    /// missing, because it was already renamed.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if the part is shorter; [`ErrorCode::StateInUse`] if another
    /// process has locked it.
    pub fn found(path: PathBuf, part: PathBuf, length: u64) -> Result<Option<Self>> {
        let file = reopened(&part, length)?;
        Ok(file.map(|file| FinishedFile { path, part, file }))
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        Ok(metadata
            .map_err(|error| cannot_write(&self.part, error))?
            .len())
    }

    /// Flushes the content to the disk.
    pub fn sync(&self) -> Result<()> {
        let synced = self.file.sync_all();
        synced.map_err(|error| cannot_write(&self.part, error))
    }

    /// Renames the part to its path, replacing any older file and adopting its permissions. With
    /// `sync`, the name is durable before this returns.
    pub fn replace(&mut self, sync: bool) -> Result<()> {
        self.rename()
            .map_err(|error| cannot_write(&self.path, error))?;
        self.named(sync)
    }

    fn rename(&self) -> io::Result<()> {
        // The permissions may have changed since the part was created.
        let kept = Permissions::of(&self.path)?;
        let give = |permissions: Permissions| permissions.apply_to(&self.file);
        kept.map_or(Ok(()), |kept| give(kept.for_writing()))?;
        fs::rename(&self.part, &self.path)?;
        // Read-only permissions are set last: an attempt must be able to reopen the part for
        // writing.
        kept.map_or(Ok(()), give)
    }

    /// Renames the part to its path; if a file has that path, to the path returned by `another`.
    pub fn take_free_name(
        &mut self,
        sync: bool,
        mut another: impl FnMut() -> Result<PathBuf>,
    ) -> Result<()> {
        while !rename_to_free(&self.part, &self.path)
            .map_err(|error| cannot_write(&self.path, error))?
        {
            self.path = another()?;
        }
        self.named(sync)
    }

    fn named(&self, sync: bool) -> Result<()> {
        if sync {
            sync_folder_of(&self.path)?;
        }
        Ok(())
    }
}

/// Reopens an unfinished file of an earlier attempt and truncates it to `length` bytes. Returns
/// `None` if the file is missing.
pub(super) fn reopened(part: &Path, length: u64) -> Result<Option<File>> {
    let failed = |error| cannot_write(part, error);
    let mut file = match part_options().open(part) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(cannot_lock(part, error)),
        Err(TryLockError::WouldBlock) => return Err(still_held(part)),
    }
    let has = file.metadata().map_err(failed)?.len();
    if has < length {
        let what = format!(
            "{} has {has} bytes, but {length} bytes of committed output had been written",
            part.shown()
        );
        return Err(Error::new(ErrorCode::WriteFailed, what).hint(
            "put the file back that was being written, or start the job without the checkpoint",
        ));
    }
    file.set_len(length)
        .and_then(|()| file.seek(SeekFrom::End(0)))
        .map_err(failed)?;
    Ok(Some(file))
}

/// Returns the error for a part that an earlier process of the same job, which may hang, has
/// locked.
fn still_held(part: &Path) -> Error {
    let what = format!(
        "{} is still held by a process of an earlier attempt of the job",
        part.shown()
    );
    Error::new(ErrorCode::StateInUse, what)
        .hint("the job goes on by itself when that process has ended; end it if it hangs")
}

/// Flushes the directory of a file, so that its name is durable.
pub(super) fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))
        .and_then(|folder| folder.sync_all())
        .map_err(|error| cannot_write(path, error))
}
