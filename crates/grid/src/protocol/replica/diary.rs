//! What a primary notes of maps that are watched, until it is told.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::protocol::operation::{Change, MapId, own};
use crate::protocol::shelf::Shelf;
use crate::protocol::tidings::{Chapter, Happened, Rule};

/// What a primary notes of maps that are watched.
#[derive(Debug, Default)]
pub(super) struct Diary {
    watched: Arc<[MapId]>,
    chapters: Vec<Chapter>,
}

impl Diary {
    /// These are watched now.
    pub fn watch(&mut self, maps: Arc<[MapId]>) {
        self.watched = maps;
    }

    /// Whether the map is watched. Nearly always none is.
    #[inline]
    pub fn watches(&self, map: MapId) -> bool {
        self.watched.contains(&map)
    }

    /// Another primary's rule begins here, before it has made any change.
    pub fn begin(&mut self, rule: Rule, shelf: &Shelf) {
        let maps = self.watched.iter();
        let places = maps.map(|map| Diary::place(rule, *map, shelf));
        self.chapters.extend(places);
    }

    /// Where a map stands.
    pub fn place(rule: Rule, map: MapId, shelf: &Shelf) -> Chapter {
        let touched = shelf.touched(map);
        Chapter {
            map,
            rule,
            after: touched,
            upto: touched,
            happened: Vec::new(),
        }
    }

    /// Makes a change, and notes what it does.
    pub fn apply(&mut self, rule: Rule, shelf: &mut Shelf, change: &Change, number: u64) {
        let map = change.map();
        let happened = Diary::happens(shelf, change);
        let goes_on = |last: &Chapter| last.map == map && last.rule == rule;
        if !self.chapters.last().is_some_and(goes_on) {
            self.chapters.push(Diary::place(rule, map, shelf));
        }
        shelf.apply(change, number);
        if let Some(chapter) = self.chapters.last_mut() {
            chapter.upto = number;
            let numbered = happened.into_iter().map(|what| (number, what));
            chapter.happened.extend(numbered);
        }
    }

    /// What a change does, before it is made.
    fn happens(shelf: &Shelf, change: &Change) -> Vec<Happened> {
        let map = change.map();
        match change {
            // News may wait for long: what comes with other maps' changes is not to stay because of them.
            Change::Set { key, value, .. } => vec![Happened::Set {
                key: Bytes::copy_from_slice(key),
                value: own(value),
                is_new: shelf.get(map, key).is_none(),
            }],
            Change::Remove { key, .. } => {
                let had = shelf.get(map, key).is_some();
                let key = Bytes::copy_from_slice(key);
                let removed = had.then_some(Happened::Removed { key });
                removed.into_iter().collect()
            }
            Change::Clear(_) => {
                let keys = shelf.keys(map);
                keys.map(|key| Happened::Removed { key }).collect()
            }
            // Each is of another key.
            Change::Together(_, parts) => {
                let parts = parts.iter();
                parts.flat_map(|part| Diary::happens(shelf, part)).collect()
            }
            Change::SetAll { pairs, .. } => {
                let mut keys = BTreeSet::new();
                let pairs = pairs.iter().map(|(key, value)| Happened::Set {
                    key: Bytes::copy_from_slice(key),
                    value: Bytes::copy_from_slice(value),
                    is_new: keys.insert(key) && shelf.get(map, key).is_none(),
                });
                pairs.collect()
            }
        }
    }

    /// What was noted since the last time.
    pub fn take(&mut self) -> Vec<Chapter> {
        std::mem::take(&mut self.chapters)
    }
}
