//! Registry of the map watches of a member, used by its driver.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::protocol::{EntryEvent, MapId, MemberId, View};

/// A receiver of map events. Called by the driver, so it must be fast and must not block.
pub(crate) trait EventListener: Send + Sync {
    /// Receives events of a partition, in order.
    fn on_events(&self, partition: u32, news: &[EntryEvent]);

    /// Receives the report that events of a partition were missed.
    fn on_missed(&self, partition: u32);

    /// Returns false if the listener can be removed.
    fn is_open(&self) -> bool;
}

/// Listeners by map.
#[derive(Default)]
pub(crate) struct ListenerRegistry {
    maps: BTreeMap<MapId, MapListeners>,
}

#[derive(Default)]
struct MapListeners {
    ears: Vec<Arc<dyn EventListener>>,
    /// Notified once all partitions are watched.
    waiting: Vec<Sender<()>>,
}

impl ListenerRegistry {
    /// Adds a listener for a map. `ready` is notified once all partitions are watched.
    pub fn add(&mut self, map: MapId, ear: Arc<dyn EventListener>, ready: Sender<()>) {
        let hearers = self.maps.entry(map).or_default();
        hearers.ears.push(ear);
        hearers.waiting.push(ready);
    }

    /// Marks all partitions of a map as watched.
    pub fn are_ready(&mut self, map: MapId) {
        if let Some(hearers) = self.maps.get_mut(&map) {
            for ready in hearers.waiting.drain(..) {
                // The requester may have timed out.
                let _ = ready.send(());
            }
        }
    }

    /// Passes events to the listeners of a map.
    pub fn hear(&self, map: MapId, partition: u32, news: &[EntryEvent]) {
        for ear in self.of(map) {
            ear.on_events(partition, news);
        }
    }

    /// Reports missed events to the listeners of a map.
    pub fn miss(&self, map: MapId, partition: u32) {
        for ear in self.of(map) {
            ear.on_missed(partition);
        }
    }

    fn of(&self, map: MapId) -> &[Arc<dyn EventListener>] {
        match self.maps.get(&map) {
            Some(hearers) => &hearers.ears,
            None => &[],
        }
    }

    /// Removes closed listeners. Returns the maps without any left.
    pub fn forget(&mut self) -> Vec<MapId> {
        let mut unheard = Vec::new();
        self.maps.retain(|map, hearers| {
            hearers.ears.retain(|ear| ear.is_open());
            if hearers.ears.is_empty() {
                unheard.push(*map);
            }
            !hearers.ears.is_empty()
        });
        unheard
    }
}

/// Per partition, the time up to which all events of watched maps have been received.
#[derive(Debug)]
pub(crate) struct Freshness {
    /// In microseconds of this member's clock, valid for the current primary; 0 if unknown.
    partitions: Vec<AtomicU64>,
    view: RwLock<Option<Arc<View>>>,
}

impl Freshness {
    /// Creates a table in which the times of all partitions are unknown.
    pub fn new(partitions: u32) -> Self {
        Freshness {
            partitions: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
            view: RwLock::default(),
        }
    }

    /// Installs a view. The times of partitions with another primary become unknown.
    pub fn installed(&self, view: &Arc<View>) {
        let mut before = self.view.write().unwrap_or_else(PoisonError::into_inner);
        for (number, (at, record)) in self.partitions.iter().zip(&view.records).enumerate() {
            let known = before.as_ref().and_then(|view| view.records.get(number));
            if known.is_none_or(|known| known.term != record.term) {
                at.store(0, Ordering::Release);
            }
        }
        *before = Some(Arc::clone(view));
    }

    /// Records that a member has sent all events up to a time for the partitions of which it is
    /// primary.
    pub fn told(&self, by: MemberId, at: Duration) {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner);
        let micros = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let records = view.iter().flat_map(|view| &view.records);
        for (known, record) in self.partitions.iter().zip(records) {
            if record.primary() == Some(by) {
                known.store(micros, Ordering::Release);
            }
        }
    }

    /// Returns true if all events of a partition up to `within` before `now` have been received.
    pub fn is_fresh(&self, partition: u32, now: Duration, within: Duration) -> bool {
        let at = self.partitions.get(partition as usize);
        let at = at.map_or(0, |at| at.load(Ordering::Acquire));
        at > 0 && now <= Duration::from_micros(at).saturating_add(within)
    }
}
