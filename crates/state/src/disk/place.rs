//! The place of one instance.

use std::sync::Arc;

use ardea_core::{LocalChange, LocalEntries, LocalPlace, LocalView, Result};
use fjall::{Keyspace, Readable, Snapshot};

use crate::disk::store::Open;

/// An ordered map on disk.
pub(crate) struct DiskPlace {
    keyspace: Keyspace,
    store: Arc<Open>,
}

impl DiskPlace {
    pub(crate) fn open(store: Arc<Open>) -> Result<Self> {
        let keyspace = store.add_place()?;
        Ok(DiskPlace { keyspace, store })
    }
}

impl LocalPlace for DiskPlace {
    fn memory(&self) -> u64 {
        self.store.share()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.keyspace.get(key);
        let value = value.map_err(|cause| self.store.unread(cause))?;
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
        batch.commit().map_err(|cause| self.store.failed(cause))
    }

    fn view(&self) -> Box<dyn LocalView> {
        let snapshot = self
            .store
            .database()
            .ok()
            .map(|database| database.snapshot());
        Box::new(DiskView {
            snapshot,
            keyspace: self.keyspace.clone(),
            store: Arc::clone(&self.store),
        })
    }
}

impl Drop for DiskPlace {
    fn drop(&mut self) {
        self.store.remove_place(&self.keyspace);
    }
}

/// What was in a place at one moment.
struct DiskView {
    /// None if the store was broken before.
    snapshot: Option<Snapshot>,
    keyspace: Keyspace,
    store: Arc<Open>,
}

impl LocalView for DiskView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(snapshot) = &self.snapshot else {
            return Err(self.store.unread(fjall::Error::Poisoned));
        };
        let value = snapshot.get(&self.keyspace, key);
        let value = value.map_err(|cause| self.store.unread(cause))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn range(&self, from: &[u8], until: &[u8]) -> LocalEntries {
        let store = Arc::clone(&self.store);
        let Some(snapshot) = &self.snapshot else {
            let broken = Err(store.unread(fjall::Error::Poisoned));
            return Box::new(std::iter::once(broken));
        };
        let range = from.to_vec()..until.to_vec();
        let entries = snapshot.range(&self.keyspace, range);
        Box::new(entries.map(move |entry| {
            let (key, value) = entry.into_inner().map_err(|cause| store.unread(cause))?;
            Ok((key.to_vec(), value.to_vec()))
        }))
    }
}
