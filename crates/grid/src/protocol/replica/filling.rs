//! What a copy remembers while it is being filled.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::protocol::operation::{Change, MapId};
use crate::protocol::pairs::Bunch;
use crate::protocol::shelf::{Cursor, Parcel, Shelf};

/// What a copy remembers while it is being filled, so that entries and changes may come in any order among each other.
#[derive(Clone, Debug)]
pub(super) struct Filling {
    /// Where the next entries are; none when all have come.
    pub next: Option<Cursor>,
    /// The last change that had been made to entries that have come.
    at: u64,
    /// Which change removed a key.
    removed: BTreeMap<(MapId, Bytes), u64>,
    /// Which change cleared a map.
    cleared: BTreeMap<MapId, u64>,
}

impl Default for Filling {
    fn default() -> Self {
        Filling {
            next: Some(Cursor::default()),
            at: 0,
            removed: BTreeMap::new(),
            cleared: BTreeMap::new(),
        }
    }
}

impl Filling {
    /// Whether entries are still to be asked for.
    pub fn wants(&self) -> bool {
        self.next.is_some()
    }

    /// Whether all is there, if changes are made up to that one.
    pub fn is_done(&self, applied: u64) -> bool {
        self.next.is_none() && applied >= self.at
    }

    /// Entries have come, made up to that change, and the next are there.
    pub fn came(&mut self, shelf: &mut Shelf, next: Option<Cursor>, at: u64) {
        self.next = next;
        self.at = self.at.max(at);
        if next.is_none() {
            shelf.touch_all(self.at);
            // Nothing comes any more that is older than what is here.
            self.removed.clear();
            self.cleared.clear();
        }
    }

    /// Makes a change, unless entries have come that are newer.
    pub fn apply(&mut self, shelf: &mut Shelf, change: &Change, number: u64) {
        let is_newer = |shelf: &Shelf, map, key: &[u8]| {
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
                let mut bunch = Bunch::default();
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

    /// Sets an entry, unless something newer is known of its key.
    pub fn unpack(&mut self, shelf: &mut Shelf, parcel: &Parcel) {
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
