//! Near-cache: local copies of entries of other members.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::protocol::EntryEvent;
use bytes::Bytes;

use crate::node::listeners::EventListener;

/// Number of shards, each with its own lock.
const SHARDS: usize = 64;

/// Approximate overhead of an entry besides its key and value, in bytes.
const OVERHEAD: usize = 96;

/// Settings of a near-cache; see [`GridMap::near_cache`](crate::node::GridMap::near_cache).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NearCache {
    pub(crate) bytes: usize,
    pub(crate) staleness: Duration,
}

impl Default for NearCache {
    fn default() -> Self {
        NearCache {
            bytes: 64 << 20,
            staleness: Duration::from_secs(1),
        }
    }
}

impl NearCache {
    /// Creates the default settings: 64 MB, with a staleness of at most a second.
    pub fn new() -> Self {
        NearCache::default()
    }

    /// Sets the approximate maximum size of keys and values in bytes. The least recently read
    /// entries are evicted first.
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the maximum staleness: an entry is used only if all changes older than `staleness` have
    /// been received. Values below three heartbeats of the grid (a fifth of its [failure detection
    /// timeout](crate::node::GridConfig::failure_timeout)) make the cache useless.
    pub fn staleness(mut self, staleness: Duration) -> Self {
        self.staleness = staleness;
        self
    }
}

/// Cached entries of a map.
pub(crate) struct CachedEntries {
    pub config: NearCache,
    shards: Vec<Mutex<Shard>>,
    /// Number of invalidations per partition.
    forgotten: Vec<AtomicU64>,
    hits: AtomicU64,
}

/// A shard with CLOCK eviction: an entry that was read since the hand last passed it is retained.
#[derive(Default)]
struct Shard {
    places: HashMap<Bytes, usize>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    hand: usize,
    bytes: usize,
}

struct Slot {
    partition: u32,
    key: Bytes,
    value: Bytes,
    was_read: bool,
}

impl Slot {
    fn cost(&self) -> usize {
        self.key.len() + self.value.len() + OVERHEAD
    }
}

impl CachedEntries {
    /// Creates an empty cache for this number of partitions.
    pub fn new(config: NearCache, partitions: u32) -> Self {
        CachedEntries {
            config,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            forgotten: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
            hits: AtomicU64::new(0),
        }
    }

    fn shard(&self, partition: u32) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[partition as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of cache hits.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Applies `look` to the cached value of a key.
    pub fn get<R>(&self, partition: u32, key: &[u8], look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut shard = self.shard(partition);
        let place = *shard.places.get(key)?;
        let slot = shard.slots.get_mut(place)?.as_mut()?;
        slot.was_read = true;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(look(&slot.value))
    }

    /// Returns the number of invalidations of a partition. Must be called before a value is read
    /// that will be cached.
    pub fn forgotten(&self, partition: u32) -> u64 {
        let count = self.forgotten.get(partition as usize);
        count.map_or(0, |count| count.load(Ordering::SeqCst))
    }

    /// Caches a value unless its partition was invalidated since `forgotten` was read; the value
    /// could be older than the invalidation. The value is copied, so that the buffer in which it
    /// arrived can be freed.
    pub fn keep(&self, partition: u32, key: Bytes, value: &[u8], forgotten: u64) {
        let mut shard = self.shard(partition);
        // Checked under the lock: an invalidation increments the counter before it takes the lock.
        if self.forgotten(partition) == forgotten {
            shard.keep(partition, key, value, self.config.bytes / SHARDS);
        }
    }

    /// Invalidates a key.
    pub fn forget(&self, partition: u32, key: &[u8]) {
        self.count(partition);
        self.shard(partition).forget(key);
    }

    /// Invalidates all keys of a partition.
    pub fn forget_all(&self, partition: u32) {
        self.count(partition);
        let mut shard = self.shard(partition);
        let slots = shard.slots.iter().flatten();
        let its = slots.filter(|slot| slot.partition == partition);
        let keys: Vec<Bytes> = its.map(|slot| slot.key.clone()).collect();
        for key in keys {
            shard.forget(&key);
        }
    }

    fn count(&self, partition: u32) {
        if let Some(count) = self.forgotten.get(partition as usize) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Shard {
    fn keep(&mut self, partition: u32, key: Bytes, value: &[u8], most: usize) {
        self.forget(&key);
        let cost = key.len() + value.len() + OVERHEAD;
        if cost > most {
            return;
        }
        let slot = Slot {
            partition,
            key,
            value: Bytes::copy_from_slice(value),
            was_read: false,
        };
        while self.bytes + cost > most {
            self.make_room();
        }
        self.bytes += cost;
        let place = self.free.pop().unwrap_or(self.slots.len());
        self.places.insert(slot.key.clone(), place);
        match self.slots.get_mut(place) {
            Some(free) => *free = Some(slot),
            None => self.slots.push(Some(slot)),
        }
    }

    /// Advances the hand by one slot, and evicts its entry unless it was read since the last pass.
    /// There must be a slot.
    fn make_room(&mut self) {
        self.hand = (self.hand + 1) % self.slots.len().max(1);
        match self.slots.get_mut(self.hand) {
            Some(Some(slot)) if slot.was_read => slot.was_read = false,
            Some(Some(slot)) => {
                let key = slot.key.clone();
                self.forget(&key);
            }
            _ => {}
        }
    }

    fn forget(&mut self, key: &[u8]) {
        if let Some(place) = self.places.remove(key) {
            let slot = self.slots.get_mut(place).and_then(Option::take);
            self.bytes -= slot.map_or(0, |slot| slot.cost());
            self.free.push(place);
        }
    }
}

impl fmt::Debug for CachedEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Near({:?})", self.config)
    }
}

/// Listener that invalidates changed entries of a near-cache, for as long as the cache is in use.
pub(crate) struct Invalidator(pub Weak<CachedEntries>);

impl Invalidator {
    /// Creates the listener of a cache.
    pub fn of(near: &Arc<CachedEntries>) -> Self {
        Invalidator(Arc::downgrade(near))
    }
}

impl EventListener for Invalidator {
    fn on_events(&self, partition: u32, news: &[EntryEvent]) {
        if let Some(near) = self.0.upgrade() {
            for what in news {
                near.forget(partition, what.key());
            }
        }
    }

    fn on_missed(&self, partition: u32) {
        if let Some(near) = self.0.upgrade() {
            near.forget_all(partition);
        }
    }

    fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(bytes: usize) -> CachedEntries {
        CachedEntries::new(NearCache::new().bytes(bytes * SHARDS), 128)
    }

    fn value(near: &CachedEntries, key: &str) -> Option<Vec<u8>> {
        near.get(1, key.as_bytes(), <[u8]>::to_vec)
    }

    fn keep(near: &CachedEntries, key: &'static str, value: &'static str) {
        let forgotten = near.forgotten(1);
        near.keep(1, key.into(), value.as_ref(), forgotten);
    }

    #[test]
    fn what_changed_while_it_was_read_is_not_kept() {
        let near = near(10_000);
        let before = near.forgotten(1);
        near.forget(1, b"key");
        near.keep(1, "key".into(), b"old", before);
        assert_eq!(value(&near, "key"), None);
        keep(&near, "key", "new");
        assert_eq!(value(&near, "key"), Some(b"new".to_vec()));
        assert_eq!(near.hits(), 1);
    }

    #[test]
    fn no_more_is_kept_than_it_may_and_what_is_read_stays() {
        let near = near(4 * (OVERHEAD + 4));
        let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
        keep(&near, keys[0], "xyz");
        for key in keys.into_iter().skip(1) {
            assert!(value(&near, keys[0]).is_some());
            keep(&near, key, "xyz");
        }
        let kept = keys.iter().filter(|key| value(&near, key).is_some());
        assert_eq!(kept.count(), 4);
        let shard = near.shard(1);
        assert_eq!(shard.bytes, 4 * (OVERHEAD + 4));
        assert!(shard.slots.len() <= 5);
    }

    #[test]
    fn a_partition_is_forgotten_without_others() {
        let near = near(10_000);
        keep(&near, "key", "value");
        // Another partition of the same shard.
        let other = 1 + SHARDS as u32;
        near.keep(other, "other".into(), b"value", near.forgotten(other));
        near.forget_all(1);
        assert_eq!(value(&near, "key"), None);
        assert!(near.get(other, b"other", |_| ()).is_some());
        let shard = near.shard(1);
        assert_eq!((shard.places.len(), shard.free.len()), (1, 1));
    }
}
