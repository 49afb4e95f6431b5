//! Typed watch of a map of the cluster.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::node::MapEvent;
use ardea_codec::StateValue;
use ardea_core::{ErrorCode, Key, PARTITION_COUNT, PartitionId, Result};
use bytes::Bytes;

use super::ClusterMap;
use crate::cluster::request::MapEventStream;

/// Watch of a [`ClusterMap`], from its creation until it is dropped. The events of one key are in
/// order.
///
/// A host, preferably on the same machine, sends the events over a dedicated connection. If that
/// host is lost, another one is used and all partitions are reported as [missed](MapEvent::Missed).
/// Events not yet consumed are buffered on both sides, up to 16 MB each; later ones are reported as
/// missed.
pub struct ClusterListener<K, V> {
    map: ClusterMap<K, V>,
    /// `None` while no host sends events.
    hearing: Mutex<Option<Box<dyn MapEventStream>>>,
}

impl<K: Key + StateValue, V: StateValue> ClusterMap<K, V> {
    /// Starts to watch the map.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if no host can serve the watch at the moment.
    pub fn listen(&self) -> Result<ClusterListener<K, V>> {
        Ok(ClusterListener {
            map: self.clone(),
            hearing: Mutex::new(Some(self.start_watch()?)),
        })
    }

    fn start_watch(&self) -> Result<Box<dyn MapEventStream>> {
        self.when_open(|way| way.watch(self.name()))
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

impl<K: Key + StateValue, V: StateValue> ClusterListener<K, V> {
    /// Waits up to `patience` for the next event. Returns `None` on a timeout. After the loss of a
    /// host the call may take some seconds longer, while another host is searched for.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if no host serves the watch at the moment; the next call
    /// tries again. [`ErrorCode::BadRecord`] if the entry is of another type.
    pub fn next(&self, patience: Duration) -> Result<Option<MapEvent<K, V>>> {
        let mut hearing = self.hearing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(heard) = &*hearing {
            match heard.next(patience) {
                Ok(event) => return event.map(|event| self.map.decoded(event)).transpose(),
                Err(error) if is_loss(error.code()) => *hearing = None,
                Err(error) => return Err(error),
            }
        }
        // The new watch starts before the gap is reported, so that a read of the map after the
        // report misses nothing.
        *hearing = Some(self.map.start_watch()?);
        let all = (0..PARTITION_COUNT).filter_map(PartitionId::from_index);
        Ok(Some(MapEvent::Missed(all.collect())))
    }
}

/// Returns true if another host may be able to serve the watch.
fn is_loss(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::StateUnavailable | ErrorCode::OutcomeUnknown | ErrorCode::Network
    )
}

impl<K, V> fmt::Debug for ClusterListener<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterListener({:?})", self.map)
    }
}
