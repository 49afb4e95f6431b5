//! Content of a partition.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::protocol::entry_batch::Pairs;
use crate::protocol::operation::{Change, MapId};
use crate::protocol::store::{AHEAD, Entry, Setting, Store, Value};

/// The maps of a partition, in the order of their first entry.
#[derive(Clone, Debug, Default)]
pub struct PartitionStore {
    maps: Vec<(MapId, Store)>,
    /// Number of the last change of each map that was applied here.
    touched: Vec<(MapId, u64)>,
    /// Up to this change, any map may have been changed in a way unknown to this replica.
    unheard: u64,
}

/// Position of a scan over a [`PartitionStore`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Cursor {
    map: u32,
    slot: u32,
}

/// An entry in transit between replicas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EntryTransfer {
    /// The map.
    pub map: MapId,
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// Number of the change that set the entry.
    pub version: u64,
    /// Expiry time.
    pub expires: i64,
}

impl PartitionStore {
    /// Returns a map, if it has or had entries.
    #[inline]
    pub fn map(&self, id: MapId) -> Option<&Store> {
        let mut maps = self.maps.iter();
        maps.find(|(map, _)| *map == id).map(|(_, store)| store)
    }

    fn map_mut(&mut self, id: MapId) -> &mut Store {
        let at = match self.maps.iter().position(|(map, _)| *map == id) {
            Some(at) => at,
            None => {
                self.maps.push((id, Store::default()));
                self.maps.len() - 1
            }
        };
        &mut self.maps[at].1
    }

    /// Returns the entry of a key.
    #[inline]
    pub fn get(&self, map: MapId, key: &[u8]) -> Option<Entry<'_>> {
        self.map(map)?.get(xxh3_64(key), key)
    }

    /// Returns the number of the last change that may have affected a map. No later change of the
    /// map was applied to this replica.
    pub fn touched(&self, map: MapId) -> u64 {
        let known = self.touched.iter().find(|(known, _)| *known == map);
        known.map_or(self.unheard, |(_, number)| self.unheard.max(*number))
    }

    /// Records a change of a map.
    pub fn touch(&mut self, map: MapId, number: u64) {
        match self.touched.iter_mut().find(|(known, _)| *known == map) {
            Some((_, last)) => *last = number.max(*last),
            None => self.touched.push((map, number)),
        }
    }

    /// Records that the effects of all changes up to this number have been received, but not the
    /// changes themselves.
    pub fn touch_all(&mut self, number: u64) {
        self.unheard = self.unheard.max(number);
    }

    /// Returns the keys of a map.
    pub fn keys(&self, map: MapId) -> impl Iterator<Item = Bytes> {
        let entries = self
            .map(map)
            .into_iter()
            .flat_map(|store| store.entries_from(0));
        entries.map(|(_, entry)| Bytes::copy_from_slice(entry.key))
    }

    /// Returns the memory size in bytes.
    pub fn cost(&self) -> usize {
        self.maps.iter().map(|(_, store)| store.cost()).sum()
    }

    /// Returns the memory size of guest maps in bytes.
    pub fn guest_cost(&self) -> usize {
        let guests = self.maps.iter().filter(|(map, _)| map.is_of_guest());
        guests.map(|(_, store)| store.cost()).sum()
    }

    /// Prefetches the memory that [`apply`](Self::apply) will access for these changes.
    pub fn look_ahead<'a>(&self, changes: impl Iterator<Item = &'a Change>) {
        let mut changes = changes.peekable();
        while let Some(first) = changes.peek() {
            let map = first.map();
            let (mut hashes, mut count) = ([0; AHEAD], 0);
            while count < AHEAD
                && let Some(change) = changes.next_if(|change| change.map() == map)
            {
                if let Change::Set { key, .. } | Change::Remove { key, .. } = change {
                    hashes[count] = xxh3_64(key);
                    count += 1;
                }
            }
            if let Some(store) = self.map(map) {
                store.look_ahead(&hashes[..count]);
            }
        }
    }

    /// Applies the change with this number.
    pub fn apply(&mut self, change: &Change, number: u64) {
        self.touch(change.map(), number);
        match change {
            Change::Set {
                map,
                key,
                value,
                expires,
            } => {
                let setting = Setting {
                    key,
                    value: Value::Kept(value),
                    version: number,
                    expires: *expires,
                };
                self.map_mut(*map).set(xxh3_64(key), setting);
            }
            Change::Remove { map, key } => {
                self.map_mut(*map).remove(xxh3_64(key), key);
            }
            Change::Clear(map) => self.map_mut(*map).clear(),
            Change::Together(_, parts) => {
                for part in parts {
                    self.apply(part, number);
                }
            }
            Change::SetAll {
                map,
                pairs,
                expires,
            } => {
                set_all(self.map_mut(*map), pairs, number, *expires);
            }
        }
    }

    /// Sets an entry received from another replica.
    pub fn unpack(&mut self, parcel: &EntryTransfer) {
        let setting = Setting {
            key: &parcel.key,
            value: Value::Kept(&parcel.value),
            version: parcel.version,
            expires: parcel.expires,
        };
        self.map_mut(parcel.map).set(xxh3_64(&parcel.key), setting);
        self.touch(parcel.map, parcel.version);
    }

    /// Removes the entries of a map that are not newer than a change.
    pub fn clear_up_to(&mut self, map: MapId, number: u64) {
        let store = self.map_mut(map);
        let all = store.entries_from(0);
        let old = all.filter(|(_, entry)| entry.version <= number);
        let old: Vec<Box<[u8]>> = old.map(|(_, entry)| entry.key.into()).collect();
        for key in old {
            store.remove(xxh3_64(&key), &key);
        }
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        *self = PartitionStore::default();
    }

    /// Returns about `bytes` bytes of entries from a position on, and the position of the next
    /// entries if there are more.
    pub fn parcels(&self, from: Cursor, bytes: usize) -> (Vec<EntryTransfer>, Option<Cursor>) {
        let mut parcels = Vec::new();
        let mut sum = 0;
        for (number, (map, store)) in (0_u32..).zip(&self.maps).skip(from.map as usize) {
            let slot = if number == from.map { from.slot } else { 0 };
            for (next, entry) in store.entries_from(slot as usize) {
                sum += Store::cost_of(entry.key.len(), entry.value.len());
                parcels.push(EntryTransfer {
                    map: *map,
                    key: Bytes::copy_from_slice(entry.key),
                    value: entry.to_bytes(),
                    version: entry.version,
                    expires: entry.expires,
                });
                if sum >= bytes {
                    let slot = next as u32;
                    return (parcels, Some(Cursor { map: number, slot }));
                }
            }
        }
        (parcels, None)
    }

    /// Returns true if any entry has an expiry time.
    pub fn expires(&self) -> bool {
        self.maps.iter().any(|(_, store)| store.expiring() > 0)
    }

    /// Returns expired keys among `slots` slots from a position on, and the next position.
    pub fn expired(&self, from: Cursor, now: i64, slots: usize) -> (Vec<(MapId, Bytes)>, Cursor) {
        let mut found = Vec::new();
        let Some((map, store)) = self.maps.get(from.map as usize) else {
            return (found, Cursor::default());
        };
        let next_map = Cursor {
            map: from.map + 1,
            slot: 0,
        };
        if store.expiring() == 0 {
            return (found, next_map);
        }
        let mut entries = store.entries_from(from.slot as usize);
        for _ in 0..slots {
            let Some((_, entry)) = entries.next() else {
                return (found, next_map);
            };
            if entry.expires <= now {
                found.push((*map, Bytes::copy_from_slice(entry.key)));
            }
        }
        let slot = entries.next().map(|(next, _)| next as u32 - 1);
        let cursor = slot.map(|slot| Cursor {
            map: from.map,
            slot,
        });
        (found, cursor.unwrap_or(next_map))
    }

    /// Returns all entries, sorted by map and key, for comparing replicas.
    pub fn sorted(&self) -> Vec<EntryTransfer> {
        let (mut parcels, _) = self.parcels(Cursor::default(), usize::MAX);
        parcels.sort_unstable_by(|a, b| (a.map, &a.key).cmp(&(b.map, &b.key)));
        parcels
    }
}

/// Sets entries by the change with this number.
fn set_all(store: &mut Store, pairs: &Pairs, number: u64, expires: i64) {
    let mut keys = pairs.iter().map(|(key, _)| xxh3_64(key));
    let mut look_ahead = |store: &Store| {
        let (mut hashes, mut count) = ([0; AHEAD], 0);
        for (place, hash) in hashes.iter_mut().zip(keys.by_ref()) {
            *place = hash;
            count += 1;
        }
        store.look_ahead(&hashes[..count]);
        (hashes, count)
    };
    let mut pairs = pairs.iter();
    let mut near = look_ahead(store);
    while near.1 > 0 {
        // The next keys are prefetched while these are set.
        let next = look_ahead(store);
        let (hashes, count) = near;
        for (hash, (key, value)) in hashes[..count].iter().zip(pairs.by_ref()) {
            let setting = Setting {
                key,
                value: Value::Copied(value),
                version: number,
                expires,
            };
            store.set(*hash, setting);
        }
        near = next;
    }
}
