//! Hearing what happens to a map of the cluster.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::node::MapEvent;
use ardea_codec::Kept;
use ardea_core::{ErrorCode, Key, PARTITION_COUNT, PartitionId, Result};
use bytes::Bytes;

use super::ClusterMap;
use crate::cluster::ask::Hearing;

/// Hears what happens to a [`ClusterMap`], from when it was made until it is dropped: what happens to a key in the order in which it happens.
///
/// A host tells it, that of the own machine if it can, over a connection of its own. If that host is lost another one is listened to, and all partitions are
/// [told](MapEvent::Missed) to be missed. What isn't taken waits, here and there up to 16 MB; of what comes then only is told that it was missed.
pub struct ClusterListener<K, V> {
    map: ClusterMap<K, V>,
    /// None while nobody tells.
    hearing: Mutex<Option<Box<dyn Hearing>>>,
}

impl<K: Key + Kept, V: Kept> ClusterMap<K, V> {
    /// Hears all that happens to the map from now on.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if no host tells it at the moment.
    pub fn listen(&self) -> Result<ClusterListener<K, V>> {
        Ok(ClusterListener {
            map: self.clone(),
            hearing: Mutex::new(Some(self.hear()?)),
        })
    }

    fn hear(&self) -> Result<Box<dyn Hearing>> {
        self.when_open(|way| way.listen(self.name()))
    }

    fn decoded(&self, event: MapEvent<Bytes, Bytes>) -> Result<MapEvent<K, V>> {
        let key = |key: Bytes| self.keys.get(&key);
        let value = |value: Bytes| self.values.get(&value);
        Ok(match event {
            MapEvent::Added(its, has) => MapEvent::Added(key(its)?, value(has)?),
            MapEvent::Updated(its, has) => MapEvent::Updated(key(its)?, value(has)?),
            MapEvent::Removed(its) => MapEvent::Removed(key(its)?),
            MapEvent::Missed(partitions) => MapEvent::Missed(partitions),
        })
    }
}

impl<K: Key + Kept, V: Kept> ClusterListener<K, V> {
    /// What happened next, when there is something; none if nothing happens for so long. Where a host was lost it takes some seconds longer until it is known that no other one
    /// tells anything.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if no host tells anything at the moment: the next call tries again. [`ErrorCode::BadRecord`] if the entry is of another type.
    pub fn next(&self, patience: Duration) -> Result<Option<MapEvent<K, V>>> {
        let mut hearing = self.hearing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(heard) = &*hearing {
            match heard.next(patience) {
                Ok(event) => return event.map(|event| self.map.decoded(event)).transpose(),
                Err(error) if is_loss(error.code()) => *hearing = None,
                Err(error) => return Err(error),
            }
        }
        // First heard, then told: so whoever reads then misses nothing.
        *hearing = Some(self.map.hear()?);
        let all = (0..PARTITION_COUNT).filter_map(PartitionId::from_index);
        Ok(Some(MapEvent::Missed(all.collect())))
    }
}

/// Whether somebody else may tell more.
fn is_loss(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::StateUnavailable | ErrorCode::StateUnknown | ErrorCode::Network
    )
}

impl<K, V> fmt::Debug for ClusterListener<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterListener({:?})", self.map)
    }
}
