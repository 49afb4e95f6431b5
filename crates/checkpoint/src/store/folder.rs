//! What a snapshot store needs of the place where it keeps its files.

use std::fmt;

use ardea_core::Result;
use bytes::Bytes;

use crate::store::FileName;

/// A flat folder of files that are written whole, once, and never changed: a directory, a bucket of an object store, the memory of
/// other workers.
///
/// Calls block; they come from threads that may. All may come at the same time, from several threads and processes.
pub trait Folder: Send + Sync + fmt::Debug {
    /// What people call the place, such as a path; for messages.
    fn place(&self) -> String;

    /// Writes a file, whole and durably: when this returns, the file outlives whatever may happen to processes and, as far as the
    /// place can promise it, to machines. Readers see all of it or nothing.
    ///
    /// A file that is there already with the same bytes is made as durable, and that is success.
    ///
    /// # Errors
    /// `DiskFull` or `WriteFailed`, also if the name is taken by other bytes. Then nothing new is to be seen, as a rule; if the last
    /// step failed the file may be there all the same. An unfinished one may be left, which [`list`](Self::list) tells.
    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()>;

    /// Writes several files as [`write`](Self::write) does, in less time where the place can do that. After an error some may be there.
    ///
    /// # Errors
    /// As those of [`write`](Self::write).
    fn write_all(&self, files: &[(FileName, Bytes)]) -> Result<()> {
        files
            .iter()
            .try_for_each(|(name, bytes)| self.write(name, bytes))
    }

    /// Reads a file; none if there is no such file.
    ///
    /// # Errors
    /// `ReadFailed`.
    fn read(&self, name: &FileName) -> Result<Option<Bytes>>;

    /// All files in no particular order, and what was left of writing some; other things that may be in the place are not told.
    /// Files that come or go meanwhile may be there or not.
    ///
    /// # Errors
    /// `ReadFailed`.
    fn list(&self) -> Result<Vec<Listed>>;

    /// Whether nothing is in the place, other things than files of such names included, where it can tell them.
    ///
    /// # Errors
    /// `ReadFailed`.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.list()?.is_empty())
    }

    /// Tries whether the place can keep what [`write`](Self::write) promises, by a file of its own, which is removed again. For whoever begins to
    /// write there; who only reads needs no such place.
    ///
    /// # Errors
    /// [`StoreUnsuitable`](ardea_core::ErrorCode::StoreUnsuitable) with what is missing; `DiskFull` or `WriteFailed` if nothing can be written.
    fn probe(&self) -> Result<()> {
        crate::store::probe::taken_once(self)
    }

    /// Removes files, durably, as [`write`](Self::write) says. Those that are gone already are no failure.
    ///
    /// # Errors
    /// `WriteFailed`; some may be gone.
    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()>;
}

/// A file of a [`Folder`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Listed {
    /// What it is called, or was to be called.
    pub name: FileName,
    /// Whether it is all there.
    pub state: FileState,
    /// Its size.
    pub bytes: u64,
}

/// Whether a file is all there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileState {
    /// It is, and can be read.
    Whole,
    /// It is being written, or whoever wrote it died; the number tells apart those who write the same file.
    Unfinished(u64),
}
