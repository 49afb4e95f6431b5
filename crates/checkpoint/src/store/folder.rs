//! The interface between a checkpoint store and its storage location.

use std::fmt;

use ardea_core::Result;
use bytes::Bytes;

use crate::store::FileName;

/// A flat folder of immutable files: a directory, a bucket of an object store, the memory of other
/// workers.
///
/// Calls block. Several threads and processes can call concurrently.
pub trait ObjectStore: Send + Sync + fmt::Debug {
    /// Returns the display name of the location, such as a path.
    fn place(&self) -> String;

    /// Writes a file atomically and durably: when the call returns, the file survives process
    /// failures and, as far as the location allows, machine failures. Readers see the whole file or
    /// none.
    ///
    /// If the file already exists with the same bytes, the call makes it durable and succeeds.
    ///
    /// # Errors
    /// `DiskFull` or `WriteFailed`; the latter also if a file of this name with other bytes exists.
    /// After an error the new file normally does not exist, but it may if only the last step
    /// failed. An unfinished file may remain, see [`list`](Self::list).
    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()>;

    /// Writes several files like [`write`](Self::write), faster where the location allows. After an
    /// error some of the files may exist.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    fn write_all(&self, files: &[(FileName, Bytes)]) -> Result<()> {
        files
            .iter()
            .try_for_each(|(name, bytes)| self.write(name, bytes))
    }

    /// Reads a file; `None` if it does not exist.
    ///
    /// # Errors
    /// `ReadFailed`.
    fn read(&self, name: &FileName) -> Result<Option<Bytes>>;

    /// Lists all files, including unfinished ones, in no particular order. Objects with other names
    /// are left out. Files that are created or removed concurrently may be included or not.
    ///
    /// # Errors
    /// `ReadFailed`.
    fn list(&self) -> Result<Vec<FileEntry>>;

    /// Returns true if the location contains neither files nor, where detectable, objects with
    /// other names.
    ///
    /// # Errors
    /// `ReadFailed`.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.list()?.is_empty())
    }

    /// Checks that the location can keep the guarantees of [`write`](Self::write): writes a probe
    /// file and removes it. For processes that write files.
    ///
    /// # Errors
    /// [`StoreUnsuitable`](ardea_core::ErrorCode::StoreUnsuitable) with the missing property;
    /// `DiskFull` or `WriteFailed` if nothing can be written.
    fn probe(&self) -> Result<()> {
        crate::store::probe::taken_once(self)
    }

    /// Removes files durably. Missing files are no error.
    ///
    /// # Errors
    /// `WriteFailed`. Some of the files may have been removed then.
    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()>;
}

/// A file in an [`ObjectStore`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileEntry {
    /// The name of the file; of an unfinished file, its final name.
    pub name: FileName,
    /// The completeness of the file.
    pub state: FileState,
    /// The size of the file.
    pub bytes: u64,
}

/// The completeness of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileState {
    /// Complete and readable.
    Whole,
    /// Being written, or left by a dead writer. The number identifies the writer.
    Unfinished(u64),
}
