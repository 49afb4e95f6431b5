//! The content of a partition: its maps.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::protocol::operation::{Change, MapId};
use crate::protocol::pairs::Pairs;
use crate::protocol::store::{AHEAD, Entry, Setting, Store, Value};

/// The maps of a partition, the first that had something in front.
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    maps: Vec<(MapId, Store)>,
    /// The last change of each map that has been made here.
    touched: Vec<(MapId, u64)>,
    /// Up to this change any map may have been touched: how, this copy has not heard.
    unheard: u64,
}

/// A place in a [`Shelf`] that is gone through.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Cursor {
    map: u32,
    slot: u32,
}

/// An entry on its way from one copy to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Parcel {
    /// Of which map.
    pub map: MapId,
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The change that made it.
    pub version: u64,
    /// When it expires.
    pub expires: i64,
}

impl Shelf {
    /// A map, if it has or had something.
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

    /// What a key has.
    #[inline]
    pub fn get(&self, map: MapId, key: &[u8]) -> Option<Entry<'_>> {
        self.map(map)?.get(xxh3_64(key), key)
    }

    /// The last change that a map may have seen: none behind it was made here.
    pub fn touched(&self, map: MapId) -> u64 {
        let known = self.touched.iter().find(|(known, _)| *known == map);
        known.map_or(self.unheard, |(_, number)| self.unheard.max(*number))
    }

    /// A change of a map has been made.
    pub fn touch(&mut self, map: MapId, number: u64) {
        match self.touched.iter_mut().find(|(known, _)| *known == map) {
            Some((_, last)) => *last = number.max(*last),
            None => self.touched.push((map, number)),
        }
    }

    /// All that is left of the changes up to this one has come, and not what they were.
    pub fn touch_all(&mut self, number: u64) {
        self.unheard = self.unheard.max(number);
    }

    /// The keys of a map.
    pub fn keys(&self, map: MapId) -> impl Iterator<Item = Bytes> {
        let entries = self
            .map(map)
            .into_iter()
            .flat_map(|store| store.entries_from(0));
        entries.map(|(_, entry)| Bytes::copy_from_slice(entry.key))
    }

    /// What all of it costs, in bytes.
    pub fn cost(&self) -> usize {
        self.maps.iter().map(|(_, store)| store.cost()).sum()
    }

    /// What of that is of guests.
    pub fn guest_cost(&self) -> usize {
        let guests = self.maps.iter().filter(|(map, _)| map.is_of_guest());
        guests.map(|(_, store)| store.cost()).sum()
    }

    /// Brings near what [`apply`](Self::apply) will need of these changes.
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

    /// Makes a change, the one of that number.
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

    /// Sets what a parcel says.
    pub fn unpack(&mut self, parcel: &Parcel) {
        let setting = Setting {
            key: &parcel.key,
            value: Value::Kept(&parcel.value),
            version: parcel.version,
            expires: parcel.expires,
        };
        self.map_mut(parcel.map).set(xxh3_64(&parcel.key), setting);
        self.touch(parcel.map, parcel.version);
    }

    /// Removes the entries of a map that are not newer than that change.
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
        *self = Shelf::default();
    }

    /// Entries from a place on, about so many bytes of them, and where the next are; none if there are no more.
    pub fn parcels(&self, from: Cursor, bytes: usize) -> (Vec<Parcel>, Option<Cursor>) {
        let mut parcels = Vec::new();
        let mut sum = 0;
        for (number, (map, store)) in (0_u32..).zip(&self.maps).skip(from.map as usize) {
            let slot = if number == from.map { from.slot } else { 0 };
            for (next, entry) in store.entries_from(slot as usize) {
                sum += Store::cost_of(entry.key.len(), entry.value.len());
                parcels.push(Parcel {
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

    /// Whether anything in it expires some time.
    pub fn expires(&self) -> bool {
        self.maps.iter().any(|(_, store)| store.expiring() > 0)
    }

    /// Some keys that have expired by then, found among so many slots from a place on, and where to go on.
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

    /// All entries, in order of map and key: for comparing copies.
    pub fn sorted(&self) -> Vec<Parcel> {
        let (mut parcels, _) = self.parcels(Cursor::default(), usize::MAX);
        parcels.sort_unstable_by(|a, b| (a.map, &a.key).cmp(&(b.map, &b.key)));
        parcels
    }
}

/// Sets what keys have, by the change of that number.
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
        // Some come while others are set.
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
