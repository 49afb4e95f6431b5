//! A store in the memory of this process.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::Result;
use bytes::Bytes;

use crate::store::failure::unwritable;
use crate::store::{FileEntry, FileName, FileState, ObjectStore};

/// A store of files in the memory of this process, which exist until the last clone is dropped. For
/// tests, and for jobs whose state need not outlive the process.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    files: Arc<Mutex<BTreeMap<FileName, Bytes>>>,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        MemoryStore::default()
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<FileName, Bytes>> {
        // Every change is a single step, so a poisoned lock is consistent.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectStore for MemoryStore {
    fn place(&self) -> String {
        "memory".to_string()
    }

    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
        let mut files = self.files();
        match files.get(name) {
            Some(there) if there != bytes => {
                let error = io::Error::from(io::ErrorKind::AlreadyExists);
                Err(unwritable(name.as_str(), &self.place(), error))
            }
            Some(_) => Ok(()),
            None => {
                files.insert(name.clone(), Bytes::copy_from_slice(bytes));
                Ok(())
            }
        }
    }

    fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
        Ok(self.files().get(name).cloned())
    }

    fn list(&self) -> Result<Vec<FileEntry>> {
        let files = self.files();
        let listed = files.iter().map(|(name, bytes)| FileEntry {
            name: name.clone(),
            state: FileState::Whole,
            bytes: bytes.len() as u64,
        });
        Ok(listed.collect())
    }

    fn remove(&self, names: &[(FileName, FileState)]) -> Result<()> {
        let mut files = self.files();
        for (name, state) in names {
            if *state == FileState::Whole {
                files.remove(name);
            }
        }
        Ok(())
    }
}
