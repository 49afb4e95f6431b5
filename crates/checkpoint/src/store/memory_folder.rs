//! A folder in the memory of this process.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::Result;
use bytes::Bytes;

use crate::store::failure::unwritable;
use crate::store::{FileName, FileState, Folder, Listed};

/// Files in the memory of this process, gone when the last clone is: for jobs whose state need not outlive it, and for tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryFolder {
    files: Arc<Mutex<BTreeMap<FileName, Bytes>>>,
}

impl MemoryFolder {
    /// One without files.
    pub fn new() -> Self {
        MemoryFolder::default()
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<FileName, Bytes>> {
        // A map is whole whatever a thread did that panicked.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Folder for MemoryFolder {
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

    fn list(&self) -> Result<Vec<Listed>> {
        let files = self.files();
        let listed = files.iter().map(|(name, bytes)| Listed {
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
