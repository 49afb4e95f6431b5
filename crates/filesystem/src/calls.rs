//! The calls of a file system.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::Path;

use crate::rename_to_free;

/// The file system calls of a [probe](crate::probe_with). Tests replace them with failing ones.
pub trait FileSystem {
    /// Creates a file that must not exist.
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

    /// Acquires the advisory lock of a file. Returns false if another handle holds it.
    fn try_lock(&self, file: &File) -> io::Result<bool> {
        match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Syncs the content of a file to the disk.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    /// Syncs the names in a folder to the disk.
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    /// Renames a file and replaces an existing one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Renames a file. Returns false if the new name is taken.
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
