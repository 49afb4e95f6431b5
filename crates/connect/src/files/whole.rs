//! A file that has all its content, and is about to get its name.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::part_file::{cannot_write, is_named, part_options};

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
                part.display()
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

    /// Gives it its name, in place of any older file. With `sync` the name is on the disk before this returns.
    pub fn replace(&mut self, sync: bool) -> Result<()> {
        fs::rename(&self.part, &self.path).map_err(|error| cannot_write(&self.path, error))?;
        self.named(sync)
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
        Err(TryLockError::Error(error)) => return Err(failed(error)),
        Err(TryLockError::WouldBlock) => return Err(still_held(part)),
    }
    let has = file.metadata().map_err(failed)?.len();
    if has < length {
        let what = format!(
            "{} has {has} bytes, where {length} had been written that count",
            part.display()
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
        part.display()
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

/// Gives the file `from` the name `to`, unless something has that: then false.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<bool> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // The file system has no such call.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_to_free(from, to),
        Err(error) => Err(error.into()),
    }
}

/// As [`rename_to_free`], by two steps. Whoever dies between them leaves the file with both names: then the second is made up for.
fn link_to_free(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let (ours, its) = (fs::symlink_metadata(from)?, fs::symlink_metadata(to)?);
            if (ours.dev(), ours.ino()) != (its.dev(), its.ino()) {
                return Ok(false);
            }
        }
        linked => linked?,
    }
    fs::remove_file(from).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_is_left_alone_both_ways() {
        for rename in [rename_to_free, link_to_free] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            fs::write(at("mine"), "mine").unwrap();
            fs::write(at("taken"), "theirs").unwrap();
            std::os::unix::fs::symlink("nothing", at("link")).unwrap();
            for name in ["taken", "link"] {
                assert!(!rename(&at("mine"), &at(name)).unwrap());
            }
            assert!(rename(&at("mine"), &at("free")).unwrap());
            assert_eq!(fs::read(at("taken")).unwrap(), b"theirs");
            assert_eq!(fs::read(at("free")).unwrap(), b"mine");
            assert!(!at("mine").exists() && !at("nothing").exists());
        }
    }

    #[test]
    fn a_file_that_got_its_name_by_half_gets_no_second_one() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("part"), "mine").unwrap();
        fs::hard_link(at("part"), at("whole")).unwrap();
        assert!(link_to_free(&at("part"), &at("whole")).unwrap());
        assert!(!at("part").exists());
        assert_eq!(fs::read(at("whole")).unwrap(), b"mine");
    }

    #[test]
    fn what_an_earlier_life_left_is_cut_to_what_counts_or_refused_or_gone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("out.part"), "12345").unwrap();
        let found = |length| Whole::found(at("out"), at("out.part"), length);
        assert_eq!(found(6).err().unwrap().code(), ErrorCode::WriteFailed);
        let mut whole = found(3).unwrap().unwrap();
        assert_eq!(whole.length().unwrap(), 3);
        assert!(found(3).is_err(), "somebody has it");
        whole.sync().unwrap();
        whole.replace(true).unwrap();
        assert_eq!(fs::read(at("out")).unwrap(), b"123");
        assert!(found(3).unwrap().is_none());
    }
}
