//! An in-memory store for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ardea_core::{
    Error, ErrorCode, KeyValueStore, LocalChange, LocalEntries, Result, StateBackend, StoreSnapshot,
};

/// A store in memory with a limit of a few keys in memory, or a full one.
#[derive(Clone, Default, Debug)]
pub struct MemoryDisk {
    /// The entries.
    pub entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// True if writing fails.
    pub is_full: bool,
    /// The starts of the ranges that were read.
    pub looked_from: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl StateBackend for MemoryDisk {
    fn open(&self) -> Result<Box<dyn KeyValueStore>> {
        Ok(Box::new(self.clone()))
    }
}

impl KeyValueStore for MemoryDisk {
    fn memory_budget(&self) -> u64 {
        1
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.entries.get(key).cloned())
    }

    fn write(&mut self, changes: &[LocalChange]) -> Result<()> {
        if self.is_full {
            return Err(Error::new(ErrorCode::DiskFull, "no room"));
        }
        for (key, value) in changes {
            match value {
                Some(value) => self.entries.insert(key.clone(), value.clone()),
                None => self.entries.remove(key),
            };
        }
        Ok(())
    }

    fn view(&self) -> Box<dyn StoreSnapshot> {
        Box::new(self.clone())
    }
}

impl StoreSnapshot for MemoryDisk {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.entries.get(key).cloned())
    }

    fn range(&self, from: &[u8], until: &[u8]) -> LocalEntries {
        self.looked_from.lock().unwrap().push(from.to_vec());
        let range = self.entries.range(from.to_vec()..until.to_vec());
        let entries: Vec<_> = range.map(|(k, v)| Ok((k.clone(), v.clone()))).collect();
        Box::new(entries.into_iter())
    }
}
