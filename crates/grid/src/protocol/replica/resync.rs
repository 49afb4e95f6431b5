//! State of a replica in resync.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::protocol::entry_batch::EntryBatch;
use crate::protocol::operation::{Change, MapId};
use crate::protocol::partition_store::{Cursor, EntryTransfer, PartitionStore};

/// State of a replica in resync, which allows entries and changes to arrive in any relative order.
#[derive(Clone, Debug)]
pub(super) struct Resync {
    /// The position of the next entries; `None` when all have arrived.
    pub next: Option<Cursor>,
    /// The last change that was applied to any received entry.
    at: u64,
    /// Per removed key, the change that removed it.
    removed: BTreeMap<(MapId, Bytes), u64>,
    /// Per cleared map, the change that cleared it.
    cleared: BTreeMap<MapId, u64>,
}

impl Default for Resync {
    fn default() -> Self {
        Resync {
            next: Some(Cursor::default()),
            at: 0,
            removed: BTreeMap::new(),
            cleared: BTreeMap::new(),
        }
    }
}

impl Resync {
    /// Starts a resync from a stream that begins after the change `start`. There are no entries
    /// from before the first change.
    pub fn before_stream(start: u64) -> Self {
        let resync = Resync::default();
        Resync {
            next: resync.next.filter(|_| start > 0),
            ..resync
        }
    }

    /// Returns true if there are entries left to request.
    pub fn wants(&self) -> bool {
        self.next.is_some()
    }

    /// Returns true if the replica is complete once changes up to `applied` are applied.
    pub fn is_done(&self, applied: u64) -> bool {
        self.next.is_none() && applied >= self.at
    }

    /// Records the arrival of entries that include changes up to `at`, and the position of the next
    /// entries.
    pub fn came(&mut self, shelf: &mut PartitionStore, next: Option<Cursor>, at: u64) {
        self.next = next;
        self.at = self.at.max(at);
        if next.is_none() {
            shelf.touch_all(self.at);
            // Nothing older than the present entries arrives any more.
            self.removed.clear();
            self.cleared.clear();
        }
    }

    /// Applies a change, except to entries that are newer.
    pub fn apply(&mut self, shelf: &mut PartitionStore, change: &Change, number: u64) {
        let is_newer = |shelf: &PartitionStore, map, key: &[u8]| {
            let entry = shelf.get(map, key);
            entry.is_some_and(|entry| entry.version > number)
        };
        match change {
            Change::Set { map, key, .. } => {
                if !is_newer(shelf, *map, key) {
                    shelf.apply(change, number);
                }
            }
            Change::Remove { map, key } => {
                if !is_newer(shelf, *map, key) {
                    shelf.apply(change, number);
                }
                if self.next.is_some() {
                    self.removed.insert((*map, key.clone()), number);
                }
            }
            Change::Clear(map) => {
                shelf.clear_up_to(*map, number);
                shelf.touch(*map, number);
                if self.next.is_some() {
                    self.cleared.insert(*map, number);
                }
            }
            Change::Together(_, parts) => {
                for part in parts {
                    self.apply(shelf, part, number);
                }
            }
            Change::SetAll {
                map,
                pairs,
                expires,
            } => {
                let mut bunch = EntryBatch::default();
                for (key, value) in pairs.iter().filter(|(key, _)| !is_newer(shelf, *map, key)) {
                    bunch.push(key, value);
                }
                let change = Change::SetAll {
                    map: *map,
                    pairs: bunch.finish(),
                    expires: *expires,
                };
                shelf.apply(&change, number);
            }
        }
    }

    /// Sets an entry unless a newer change of its key is known.
    pub fn unpack(&mut self, shelf: &mut PartitionStore, parcel: &EntryTransfer) {
        let known = shelf
            .get(parcel.map, &parcel.key)
            .map(|entry| entry.version);
        let removed = self.removed.get(&(parcel.map, parcel.key.clone())).copied();
        let cleared = self.cleared.get(&parcel.map).copied();
        if [known, removed, cleared]
            .into_iter()
            .flatten()
            .all(|version| version < parcel.version)
        {
            shelf.unpack(parcel);
        }
    }
}
