//! Who is to hear what happens to the maps of a grid, as its driver knows them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::protocol::{Happened, MapId, MemberId, View};

/// Somebody who hears what happens to a map. Called by the driver, which waits: it has to be quick.
pub(crate) trait Ear: Send + Sync {
    /// That has happened in a partition, in this order.
    fn hears(&self, partition: u32, news: &[Happened]);

    /// Something has happened in a partition that is not told.
    fn misses(&self, partition: u32);

    /// Whether anything is to be heard any more.
    fn is_open(&self) -> bool;
}

/// Who is to hear of which map.
#[derive(Default)]
pub(crate) struct Ears {
    maps: BTreeMap<MapId, Hearers>,
}

#[derive(Default)]
struct Hearers {
    ears: Vec<Arc<dyn Ear>>,
    /// Who waits to be told that all is heard from now on.
    waiting: Vec<Sender<()>>,
}

impl Ears {
    /// One more is to hear of a map, and is told when it does.
    pub fn add(&mut self, map: MapId, ear: Arc<dyn Ear>, ready: Sender<()>) {
        let hearers = self.maps.entry(map).or_default();
        hearers.ears.push(ear);
        hearers.waiting.push(ready);
    }

    /// All that happens to a map is heard from now on.
    pub fn are_ready(&mut self, map: MapId) {
        if let Some(hearers) = self.maps.get_mut(&map) {
            for ready in hearers.waiting.drain(..) {
                // Whoever asked may have given up.
                let _ = ready.send(());
            }
        }
    }

    /// Something has happened.
    pub fn hear(&self, map: MapId, partition: u32, news: &[Happened]) {
        for ear in self.of(map) {
            ear.hears(partition, news);
        }
    }

    /// Something was missed.
    pub fn miss(&self, map: MapId, partition: u32) {
        for ear in self.of(map) {
            ear.misses(partition);
        }
    }

    fn of(&self, map: MapId) -> &[Arc<dyn Ear>] {
        match self.maps.get(&map) {
            Some(hearers) => &hearers.ears,
            None => &[],
        }
    }

    /// Forgets who hears no more; the maps of which nobody does.
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

/// Up to which time all that has happened in each partition was told, to maps that are listened to.
#[derive(Debug)]
pub(crate) struct Fresh {
    /// In microseconds by the member's clock, with whoever is the primary; zero if that isn't known.
    partitions: Vec<AtomicU64>,
    view: RwLock<Option<Arc<View>>>,
}

impl Fresh {
    /// Nothing was told yet, in so many partitions.
    pub fn new(partitions: u32) -> Self {
        Fresh {
            partitions: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
            view: RwLock::default(),
        }
    }

    /// There is another view: where it has another primary nothing was told by that one.
    pub fn installed(&self, view: &Arc<View>) {
        let mut before = self.view.write().unwrap_or_else(PoisonError::into_inner);
        for (number, (at, record)) in self.partitions.iter().zip(&view.records).enumerate() {
            let known = before.as_ref().and_then(|view| view.records.get(number));
            if known.is_none_or(|known| known.reign != record.reign) {
                at.store(0, Ordering::Release);
            }
        }
        *before = Some(Arc::clone(view));
    }

    /// A member has told all that had happened by then where it is primary.
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

    /// Whether all that had happened in a partition that long ago was told.
    pub fn is_fresh(&self, partition: u32, now: Duration, within: Duration) -> bool {
        let at = self.partitions.get(partition as usize);
        let at = at.map_or(0, |at| at.load(Ordering::Acquire));
        at > 0 && now <= Duration::from_micros(at).saturating_add(within)
    }
}
