//! The calls of a file system.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::Path;

use crate::rename_to_free;

/// The calls that a [probe](crate::probe_by) makes. Tests have them fail.
pub trait FileSystem {
    /// Creates a file, which must not be there.
    fn create_new(&self, path: &Path) -> io::Result<File> {
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
    }

    /// Opens a file for writing.
    fn open(&self, path: &Path) -> io::Result<File> {
        File::options().write(true).open(path)
    }

    /// Writes to a file.
    fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    /// Takes the advisory lock of a file; false if another handle has it.
    fn try_lock(&self, file: &File) -> io::Result<bool> {
        match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Has the disk keep a file.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    /// Has the disk keep the names in a folder.
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    /// Gives a file another name, in place of what has that.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Gives a file another name; false if something has that.
    fn rename_to_free(&self, from: &Path, to: &Path) -> io::Result<bool> {
        rename_to_free(from, to)
    }

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

/// The file systems of this machine.
#[derive(Clone, Copy, Debug)]
pub struct System;

impl FileSystem for System {}
