//! Local disk storage for state that does not fit into memory.

use std::fmt;

use crate::Result;

/// Local disk storage for the state of a process's instances.
///
/// The storage is a cache of state that checkpoints protect: its content does not survive the
/// process and need not be durable.
pub trait StateBackend: Send + Sync + fmt::Debug {
    /// Opens an empty store for one instance; dropping the store deletes it.
    ///
    /// # Errors
    /// [`ErrorCode::DiskFull`](crate::ErrorCode::DiskFull), or
    /// [`ErrorCode::WriteFailed`](crate::ErrorCode::WriteFailed).
    fn open(&self) -> Result<Box<dyn KeyValueStore>>;
}

/// A change: a key with its new value, or `None` to remove it.
pub type LocalChange = (Vec<u8>, Option<Vec<u8>>);

/// An iterator over entries in order of their keys.
pub type LocalEntries = Box<dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>> + Send>;

/// The local store of one instance: an ordered map on disk.
pub trait KeyValueStore: Send {
    /// Returns the memory budget in bytes of this store's owner. It depends on the current number
    /// of stores.
    fn memory_budget(&self) -> u64;

    /// Returns the value of a key.
    ///
    /// # Errors
    /// If it can't be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Applies a batch of changes, which must not contain a key twice.
    ///
    /// # Errors
    /// [`ErrorCode::DiskFull`](crate::ErrorCode::DiskFull) and others; a part of the changes may
    /// then have been applied.
    fn write(&mut self, changes: &[LocalChange]) -> Result<()>;

    /// Returns a snapshot of the store that later writes do not change. Costs about as much as
    /// [`get`](Self::get).
    fn view(&self) -> Box<dyn StoreSnapshot>;
}

/// A snapshot of a [`KeyValueStore`].
pub trait StoreSnapshot: Send {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// If it can't be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Returns the entries from the key `from` on, before the key `until`.
    fn range(&self, from: &[u8], until: &[u8]) -> LocalEntries;
}
