//! The local store of one instance.

use std::sync::Arc;

use ardea_core::{KeyValueStore, LocalChange, LocalEntries, Result, StoreSnapshot};
use fjall::{Keyspace, Readable, Snapshot};

use crate::disk::store::OpenDatabase;

/// An ordered map on disk.
pub(crate) struct DiskKeyValueStore {
    keyspace: Keyspace,
    store: Arc<OpenDatabase>,
}

impl DiskKeyValueStore {
    pub(crate) fn open(store: Arc<OpenDatabase>) -> Result<Self> {
        let keyspace = store.add_map()?;
        Ok(DiskKeyValueStore { keyspace, store })
    }
}

impl KeyValueStore for DiskKeyValueStore {
    fn memory_budget(&self) -> u64 {
        self.store.share()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.keyspace.get(key);
        let value = value.map_err(|cause| self.store.read_error(cause))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn write(&mut self, changes: &[LocalChange]) -> Result<()> {
        self.store.check_room()?;
        let mut batch = self.store.database()?.batch();
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(&self.keyspace, key.as_slice(), value.as_slice()),
                None => batch.remove(&self.keyspace, key.as_slice()),
            }
        }
        batch
            .commit()
            .map_err(|cause| self.store.write_error(cause))
    }

    fn view(&self) -> Box<dyn StoreSnapshot> {
        let snapshot = self
            .store
            .database()
            .ok()
            .map(|database| database.snapshot());
        Box::new(DiskStoreSnapshot {
            snapshot,
            keyspace: self.keyspace.clone(),
            store: Arc::clone(&self.store),
        })
    }
}

impl Drop for DiskKeyValueStore {
    fn drop(&mut self) {
        self.store.remove_map(&self.keyspace);
    }
}

/// A snapshot of an instance's store.
struct DiskStoreSnapshot {
    /// `None` if the store was already broken.
    snapshot: Option<Snapshot>,
    keyspace: Keyspace,
    store: Arc<OpenDatabase>,
}

impl StoreSnapshot for DiskStoreSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(snapshot) = &self.snapshot else {
            return Err(self.store.read_error(fjall::Error::Poisoned));
        };
        let value = snapshot.get(&self.keyspace, key);
        let value = value.map_err(|cause| self.store.read_error(cause))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn range(&self, from: &[u8], until: &[u8]) -> LocalEntries {
        let store = Arc::clone(&self.store);
        let Some(snapshot) = &self.snapshot else {
            let broken = Err(store.read_error(fjall::Error::Poisoned));
            return Box::new(std::iter::once(broken));
        };
        let range = from.to_vec()..until.to_vec();
        let entries = snapshot.range(&self.keyspace, range);
        Box::new(entries.map(move |entry| {
            let (key, value) = entry
                .into_inner()
                .map_err(|cause| store.read_error(cause))?;
            Ok((key.to_vec(), value.to_vec()))
        }))
    }
}
