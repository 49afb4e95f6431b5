//! Near-cache of a map.

use std::sync::Arc;

use crate::protocol::Answer;
use ardea_codec::StateValue;
use ardea_core::{Key, PartitionId, Result};
use bytes::Bytes;

use super::GridMap;
use crate::node::near_cache::{CachedEntries, Invalidator, NearCache};

/// An entry to be cached once it is read: the partition, the key, and the partition's invalidation
/// count before the read.
pub(super) type Keep = (u32, Bytes, u64);

impl<K: Key + StateValue, V: StateValue> GridMap<K, V> {
    /// Returns the same map with a near-cache for entries of other members. Use it for entries that
    /// are read often and rarely change.
    ///
    /// Entries are invalidated when their primary reports a change, usually within a millisecond;
    /// until then the old value may be read. In all cases a value that changed more than
    /// [`staleness`](NearCache::staleness) ago is not returned. Writes through this map are visible
    /// through it immediately. Expired entries may be read until they are removed, shortly
    /// afterwards. [`get`](Self::get), [`get_all`](Self::get_all) and [`reads`](Self::reads) use
    /// the cache.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) if some partitions
    /// cannot be watched within the timeout.
    pub fn near_cache(mut self, config: NearCache) -> Result<Self> {
        let near = Arc::new(CachedEntries::new(config, ardea_core::PARTITION_COUNT));
        self.asking
            .register_listener(Arc::new(Invalidator::of(&near)))?;
        self.near = Some(near);
        Ok(self)
    }

    /// Returns the number of near-cache hits.
    pub fn near_hits(&self) -> u64 {
        self.near.as_ref().map_or(0, |near| near.hits())
    }

    /// Returns the cached value of a key, if it is fresh.
    pub(super) fn read_near(&self, partition: u32, bytes: &[u8]) -> Option<Result<Option<V>>> {
        let (near, inner) = (self.near.as_ref()?, &self.asking.inner);
        let within = near.config.staleness;
        if !inner.fresh.is_fresh(partition, inner.clock.now(), within) {
            return None;
        }
        near.get(partition, bytes, |value| self.coder.value(value).map(Some))
    }

    /// Prepares the caching of a value that is about to be read. Must be called before the read, so
    /// that an invalidation during the read is detected.
    pub(super) fn to_keep(&self, partition: PartitionId, key: &Bytes) -> Option<Keep> {
        let near = self.near.as_ref()?;
        let partition = partition.index();
        Some((partition, key.clone(), near.forgotten(partition)))
    }

    /// Caches a value that was read.
    pub(super) fn keep_near(&self, keep: Option<Keep>, answer: &Answer) {
        if let (Some(near), Some((partition, key, forgotten)), Answer::Value(Some(value))) =
            (&self.near, keep, answer)
        {
            near.keep(partition, key, value, forgotten);
        }
    }

    /// Invalidates a key after a write through this map, since the cached value may be older.
    pub(super) fn wrote(&self, key: &K) {
        if let Some(near) = &self.near
            && let Ok(bytes) = self.key(key)
        {
            near.forget(PartitionId::of(key).index(), &bytes);
        }
    }

    pub(super) fn wrote_all(&self) {
        if let Some(near) = &self.near {
            for partition in self.partitions() {
                near.forget_all(partition.index());
            }
        }
    }
}
