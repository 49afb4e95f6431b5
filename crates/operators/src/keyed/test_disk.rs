//! A disk for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ardea_core::{
    Error, ErrorCode, LocalChange, LocalEntries, LocalPlace, LocalStore, LocalView, Result,
};

/// A disk in memory, with room for a few keys beside it; or one that is full.
#[derive(Clone, Default, Debug)]
pub(crate) struct Disk {
    pub(crate) entries: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) is_full: bool,
    /// Where the ranges began that anybody looked at.
    pub(crate) looked_from: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl LocalStore for Disk {
    fn open(&self) -> Result<Box<dyn LocalPlace>> {
        Ok(Box::new(self.clone()))
    }
}

impl LocalPlace for Disk {
    fn memory(&self) -> u64 {
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

    fn view(&self) -> Box<dyn LocalView> {
        Box::new(self.clone())
    }
}

impl LocalView for Disk {
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
