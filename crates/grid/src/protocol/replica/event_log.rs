//! Events of watched maps recorded by a primary, until they are sent.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::protocol::operation::{Change, MapId, own};
use crate::protocol::partition_store::PartitionStore;
use crate::protocol::watch_events::{EntryEvent, EventBatch, PrimaryTerm};

/// Events of watched maps recorded by a primary.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    watched: Arc<[MapId]>,
    chapters: Vec<EventBatch>,
}

impl EventLog {
    /// Sets the watched maps.
    pub fn watch(&mut self, maps: Arc<[MapId]>) {
        self.watched = maps;
    }

    /// Returns true if the map is watched. Usually none is.
    #[inline]
    pub fn watches(&self, map: MapId) -> bool {
        self.watched.contains(&map)
    }

    /// Starts the term of another primary, before it has applied any change.
    pub fn begin(&mut self, rule: PrimaryTerm, shelf: &PartitionStore) {
        let maps = self.watched.iter();
        let places = maps.map(|map| EventLog::place(rule, *map, shelf));
        self.chapters.extend(places);
    }

    /// Returns the position of a map, as an empty batch.
    pub fn place(rule: PrimaryTerm, map: MapId, shelf: &PartitionStore) -> EventBatch {
        let touched = shelf.touched(map);
        EventBatch {
            map,
            rule,
            after: touched,
            upto: touched,
            happened: Vec::new(),
        }
    }

    /// Applies a change and records its events.
    pub fn apply(
        &mut self,
        rule: PrimaryTerm,
        shelf: &mut PartitionStore,
        change: &Change,
        number: u64,
    ) {
        let map = change.map();
        let happened = EventLog::happens(shelf, change);
        let goes_on = |last: &EventBatch| last.map == map && last.rule == rule;
        if !self.chapters.last().is_some_and(goes_on) {
            self.chapters.push(EventLog::place(rule, map, shelf));
        }
        shelf.apply(change, number);
        if let Some(chapter) = self.chapters.last_mut() {
            chapter.upto = number;
            let numbered = happened.into_iter().map(|what| (number, what));
            chapter.happened.extend(numbered);
        }
    }

    /// Returns the events of a change that is about to be applied.
    fn happens(shelf: &PartitionStore, change: &Change) -> Vec<EntryEvent> {
        let map = change.map();
        match change {
            // Copied, since events may be queued for long and must not retain the memory of other
            // changes.
            Change::Set { key, value, .. } => vec![EntryEvent::Set {
                key: Bytes::copy_from_slice(key),
                value: own(value),
                is_new: shelf.get(map, key).is_none(),
            }],
            Change::Remove { key, .. } => {
                let had = shelf.get(map, key).is_some();
                let key = Bytes::copy_from_slice(key);
                let removed = had.then_some(EntryEvent::Removed { key });
                removed.into_iter().collect()
            }
            Change::Clear(_) => {
                let keys = shelf.keys(map);
                keys.map(|key| EntryEvent::Removed { key }).collect()
            }
            // Each part has a different key.
            Change::Together(_, parts) => {
                let parts = parts.iter();
                parts
                    .flat_map(|part| EventLog::happens(shelf, part))
                    .collect()
            }
            Change::SetAll { pairs, .. } => {
                let mut keys = BTreeSet::new();
                let pairs = pairs.iter().map(|(key, value)| EntryEvent::Set {
                    key: Bytes::copy_from_slice(key),
                    value: Bytes::copy_from_slice(value),
                    is_new: keys.insert(key) && shelf.get(map, key).is_none(),
                });
                pairs.collect()
            }
        }
    }

    /// Takes the events recorded since the last call.
    pub fn take(&mut self) -> Vec<EventBatch> {
        std::mem::take(&mut self.chapters)
    }
}
