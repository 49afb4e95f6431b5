//! What of a map is kept near: values that other members keep, read here.

use std::sync::Arc;

use crate::protocol::Answer;
use ardea_codec::Kept;
use ardea_core::{Key, PartitionId, Result};
use bytes::Bytes;

use super::GridMap;
use crate::node::near::{Forgets, Near, NearCache};

/// A value to be kept near when it is read: the partition, the key, and how often something of the partition had been forgotten before.
pub(super) type Keep = (u32, Bytes, u64);

impl<K: Key + Kept, V: Kept> GridMap<K, V> {
    /// The same map, of which this process keeps some values that other members keep, and reads them here: for what is read often and changes seldom.
    ///
    /// What changes is forgotten when its primary tells so, mostly within a millisecond: until then what was there before may be read. Whatever happens to members and
    /// networks, nothing is read here that had changed [that long](NearCache::staleness) ago. What is written through this map is seen through it at once.
    /// What expires may be read until it is removed, a moment later. [`get`](Self::get), [`get_all`](Self::get_all) and
    /// [`reads`](Self::reads) read here.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) if some parts of the map can't be heard of within the patience.
    pub fn near_cache(mut self, config: NearCache) -> Result<Self> {
        let near = Arc::new(Near::new(config, ardea_core::PARTITION_COUNT));
        self.asking.hear(Arc::new(Forgets::of(&near)))?;
        self.near = Some(near);
        Ok(self)
    }

    /// How often a value was found in the near-cache.
    pub fn near_hits(&self) -> u64 {
        self.near.as_ref().map_or(0, |near| near.hits())
    }

    /// What the key has, if that is kept near and fresh.
    pub(super) fn read_near(&self, partition: u32, bytes: &[u8]) -> Option<Result<Option<V>>> {
        let (near, inner) = (self.near.as_ref()?, &self.asking.inner);
        let within = near.config.staleness;
        if !inner.fresh.is_fresh(partition, inner.clock.now(), within) {
            return None;
        }
        near.get(partition, bytes, |value| self.coder.value(value).map(Some))
    }

    /// What is to be kept near of a read that is asked for now. Asked before: what is forgotten while it is read may be what was read.
    pub(super) fn to_keep(&self, partition: PartitionId, key: &Bytes) -> Option<Keep> {
        let near = self.near.as_ref()?;
        let partition = partition.index();
        Some((partition, key.clone(), near.forgotten(partition)))
    }

    /// Keeps near what was read.
    pub(super) fn keep_near(&self, keep: Option<Keep>, answer: &Answer) {
        if let (Some(near), Some((partition, key, forgotten)), Answer::Value(Some(value))) =
            (&self.near, keep, answer)
        {
            near.keep(partition, key, value, forgotten);
        }
    }

    /// What was written through this map is seen through it: what is kept near of a key may be older.
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
