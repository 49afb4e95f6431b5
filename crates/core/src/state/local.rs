//! Places on local disk, for state that memory has no room for.

use std::fmt;

use crate::Result;

/// Where the instances of a process put state that memory has no room for.
///
/// It is a cache: the truth is what snapshots hold. Nothing in it outlives the process, or has to be safe when a call returns.
pub trait LocalStore: Send + Sync + fmt::Debug {
    /// A place of its own for an instance, empty, which is gone when it is dropped.
    ///
    /// # Errors
    /// [`ErrorCode::DiskFull`](crate::ErrorCode::DiskFull), or [`ErrorCode::WriteFailed`](crate::ErrorCode::WriteFailed).
    fn open(&self) -> Result<Box<dyn LocalPlace>>;
}

/// Entries to be written: a key, and a value or that there is none any more.
pub type LocalChange = (Vec<u8>, Option<Vec<u8>>);

/// Entries in order of their keys.
pub type LocalEntries = Box<dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>> + Send>;

/// The place of one instance: an ordered map on disk.
pub trait LocalPlace: Send {
    /// How many bytes of memory the owner of this place may keep, as many places as there are now.
    fn memory(&self) -> u64;

    /// The value of a key.
    ///
    /// # Errors
    /// If it can't be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Makes these changes, no key twice; one call for many.
    ///
    /// # Errors
    /// [`ErrorCode::DiskFull`](crate::ErrorCode::DiskFull) and others; any of them may have been made then.
    fn write(&mut self, changes: &[LocalChange]) -> Result<()>;

    /// All that is there now, as it is now, whatever is written later. Costs about as much as [`get`](Self::get).
    fn view(&self) -> Box<dyn LocalView>;
}

/// What was in a [`LocalPlace`] at one moment.
pub trait LocalView: Send {
    /// The value of a key.
    ///
    /// # Errors
    /// If it can't be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The entries from the key `from` on, before the key `until`.
    fn range(&self, from: &[u8], until: &[u8]) -> LocalEntries;
}
