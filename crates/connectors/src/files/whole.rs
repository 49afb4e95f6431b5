//! A file that has all its content, and is about to get its name.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Result};
use ardea_filesystem::{Permissions, Shown, rename_to_free};

use super::part_file::{cannot_lock, cannot_write, is_named, part_options};

/// A part that has all its content.
pub(super) struct Whole {
    pub path: PathBuf,
    pub part: PathBuf,
    /// Locked, so that nobody takes it for what an earlier run left.
    file: File,
}

impl Whole {
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if something else has the name of its part by now.
    pub fn new(path: PathBuf, part: PathBuf, file: File) -> Result<Self> {
        if !is_named(&file, &part).map_err(|error| cannot_write(&path, error))? {
            let what = format!(
                "{} was replaced or removed while it was written",
                part.shown()
            );
            return Err(Error::new(ErrorCode::WriteFailed, what).hint("give each job its own path"));
        }
        Ok(Whole { path, part, file })
    }

    /// One that an earlier life has left, with so many bytes; none if it is gone: then it has got its name.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if it is shorter, or somebody else has it.
    pub fn found(path: PathBuf, part: PathBuf, length: u64) -> Result<Option<Self>> {
        let file = reopened(&part, length)?;
        Ok(file.map(|file| Whole { path, part, file }))
    }

    /// How long it is.
    pub fn length(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        Ok(metadata
            .map_err(|error| cannot_write(&self.part, error))?
            .len())
    }

    /// Has the disk keep its content.
    pub fn sync(&self) -> Result<()> {
        let synced = self.file.sync_all();
        synced.map_err(|error| cannot_write(&self.part, error))
    }

    /// Gives it its name, in place of any older file, whose permissions it gets. With `sync` the name is on the disk before this
    /// returns.
    pub fn replace(&mut self, sync: bool) -> Result<()> {
        self.rename()
            .map_err(|error| cannot_write(&self.path, error))?;
        self.named(sync)
    }

    fn rename(&self) -> io::Result<()> {
        // They may have been changed since it was begun.
        let kept = Permissions::of(&self.path)?;
        let give = |permissions: Permissions| permissions.give_to(&self.file);
        kept.map_or(Ok(()), |kept| give(kept.while_written()))?;
        fs::rename(&self.part, &self.path)?;
        // A part that can't be written could not be gone on with.
        kept.map_or(Ok(()), give)
    }

    /// Gives it its name, or `another` if something has that by now.
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

/// Opens an unfinished file of an earlier life, which had `length` bytes at least, and cuts off the rest. None if it is gone.
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
            "{} has {has} bytes, where {length} had been written that count",
            part.shown()
        );
        return Err(Error::new(ErrorCode::WriteFailed, what).hint(
            "put the file back that was being written, or start the job without the snapshot",
        ));
    }
    file.set_len(length)
        .and_then(|()| file.seek(SeekFrom::End(0)))
        .map_err(failed)?;
    Ok(Some(file))
}

/// Its name tells whose file it is: a process that hangs, or that nobody could end, of the same job.
fn still_held(part: &Path) -> Error {
    let what = format!(
        "{} is still held by a process of an earlier life of the job",
        part.shown()
    );
    Error::new(ErrorCode::StillHeld, what)
        .hint("the job goes on by itself when that process has ended; end it if it hangs")
}

/// Has the disk keep the names in the folder of a file.
pub(super) fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))
        .and_then(|folder| folder.sync_all())
        .map_err(|error| cannot_write(path, error))
}
