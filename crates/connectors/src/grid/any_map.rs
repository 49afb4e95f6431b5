//! Common interface of maps for sources, sinks and steps.

use std::collections::HashMap;
use std::time::Duration;

use ardea_codec::StateValue;
use ardea_core::{Error, ErrorCode, Key, PartitionId, Result, Waker};
use ardea_grid::cluster::{ClusterListener, ClusterMap, ClusterReads};
use ardea_grid::node::{GridMap, MapEvent, MapListener, MapReads, Read};

/// A map that a job can read and write: a [`GridMap`] of a grid member in the job's process, or a
/// [`ClusterMap`] stored by the hosts of the job's cluster. The trait is sealed.
pub trait AnyMap<K, V>: sealed::Sealed + Clone + Send + Sync + 'static {
    /// Client type for asynchronous reads.
    type Reads: AnyReads<K, V>;

    /// Listener type for map events.
    type Listener: AnyListener<K, V>;

    /// Returns the name of the map.
    fn name(&self) -> &str;

    /// Writes entries; `None` removes the key.
    ///
    /// # Errors
    /// The first error. Some entries may have been written.
    fn write(&self, entries: &HashMap<K, Option<V>>) -> Result<()>;

    /// Calls `take` with each entry of a partition.
    ///
    /// # Errors
    /// An error of the read. Some entries may have been passed to `take` before.
    fn read(&self, partition: PartitionId, take: impl FnMut(K, V)) -> Result<()>;

    /// Returns the partition of a key.
    ///
    /// # Errors
    /// If the key cannot be a key of the map.
    fn partition_of(&self, key: &K) -> Result<PartitionId>;

    /// Returns a client for asynchronous reads; `waker` is called when results are available.
    fn reads(&self, waker: Waker) -> Self::Reads;

    /// Subscribes to the events of the map.
    ///
    /// # Errors
    /// If the subscription fails.
    fn listen(&self) -> Result<Self::Listener>;

    /// Returns true if the connectors retry an operation that failed with this error.
    fn waits_for(&self, error: &Error) -> bool {
        matches!(
            error.code(),
            ErrorCode::StateUnavailable | ErrorCode::OutcomeUnknown
        )
    }

    /// Returns true if a listener that failed with this error remains usable.
    fn survives(&self, _: &Error) -> bool {
        false
    }
}

/// Asynchronous reads of a map: [`MapReads`] or [`ClusterReads`]. Never blocks.
pub trait AnyReads<K, V>: sealed::Sealed + Send + 'static {
    /// Returns the value of a key if it is available locally. Otherwise requests the value, unless
    /// too many requests are pending.
    ///
    /// # Errors
    /// If the key cannot be a key of the map, or the map is temporarily unavailable.
    fn get(&mut self, key: &K) -> Result<Read<V>>;

    /// Returns a result with its request number, in any order; `None` if no result has arrived.
    fn answer(&mut self) -> Option<(u64, Result<Option<V>>)>;
}

/// Listener to map events: [`MapListener`] or [`ClusterListener`].
pub trait AnyListener<K, V>: sealed::Sealed + Send + 'static {
    /// Waits up to `patience` for the next event; returns `None` on timeout.
    ///
    /// # Errors
    /// If events cannot be received, or the entry is of another type.
    fn next(&self, patience: Duration) -> Result<Option<MapEvent<K, V>>>;
}

impl<K: Key + StateValue, V: StateValue> AnyMap<K, V> for GridMap<K, V> {
    type Reads = MapReads<K, V>;
    type Listener = MapListener<K, V>;

    fn name(&self) -> &str {
        GridMap::name(self)
    }

    /// Writes many entries at once and waits until all are written, so that later writes follow
    /// them.
    fn write(&self, entries: &HashMap<K, Option<V>>) -> Result<()> {
        let puts = entries.iter();
        let puts = puts.filter_map(|(key, value)| Some((key, value.as_ref()?)));
        self.put_all(puts)?;
        let removed = entries.iter().filter(|(_, value)| value.is_none());
        self.remove_all(removed.map(|(key, _)| key))
    }

    fn read(&self, partition: PartitionId, mut take: impl FnMut(K, V)) -> Result<()> {
        self.scan_partitions([partition], |key, value| {
            take(key, value);
            true
        })
    }

    fn partition_of(&self, key: &K) -> Result<PartitionId> {
        Ok(PartitionId::of(key))
    }

    fn reads(&self, waker: Waker) -> MapReads<K, V> {
        GridMap::reads(self, waker)
    }

    fn listen(&self) -> Result<MapListener<K, V>> {
        GridMap::listen(self)
    }
}

impl<K: Key + StateValue, V: StateValue> AnyReads<K, V> for MapReads<K, V> {
    fn get(&mut self, key: &K) -> Result<Read<V>> {
        MapReads::get(self, key)
    }

    fn answer(&mut self) -> Option<(u64, Result<Option<V>>)> {
        MapReads::answer(self)
    }
}

impl<K: Key + StateValue, V: StateValue> AnyListener<K, V> for MapListener<K, V> {
    fn next(&self, patience: Duration) -> Result<Option<MapEvent<K, V>>> {
        MapListener::next(self, patience)
    }
}

impl<K: Key + StateValue, V: StateValue> AnyMap<K, V> for ClusterMap<K, V> {
    type Reads = ClusterReads<K, V>;
    type Listener = ClusterListener<K, V>;

    fn name(&self) -> &str {
        ClusterMap::name(self)
    }

    fn write(&self, entries: &HashMap<K, Option<V>>) -> Result<()> {
        let entries = entries.iter();
        ClusterMap::write(self, entries.map(|(key, value)| (key, value.as_ref())))
    }

    fn read(&self, partition: PartitionId, take: impl FnMut(K, V)) -> Result<()> {
        self.scan_partition(partition, take)
    }

    fn partition_of(&self, key: &K) -> Result<PartitionId> {
        ClusterMap::partition_of(self, key)
    }

    fn reads(&self, waker: Waker) -> ClusterReads<K, V> {
        ClusterMap::reads(self, waker)
    }

    fn listen(&self) -> Result<ClusterListener<K, V>> {
        ClusterMap::listen(self)
    }

    /// Retries also on a full map, until space is freed or another host is added.
    fn waits_for(&self, error: &Error) -> bool {
        matches!(
            error.code(),
            ErrorCode::StateUnavailable | ErrorCode::OutcomeUnknown | ErrorCode::LimitReached
        )
    }

    /// Returns true for retriable errors: the listener reconnects to another host.
    fn survives(&self, error: &Error) -> bool {
        self.waits_for(error)
    }
}

impl<K: Key + StateValue, V: StateValue> AnyReads<K, V> for ClusterReads<K, V> {
    fn get(&mut self, key: &K) -> Result<Read<V>> {
        ClusterReads::get(self, key)
    }

    fn answer(&mut self) -> Option<(u64, Result<Option<V>>)> {
        ClusterReads::answer(self)
    }
}

impl<K: Key + StateValue, V: StateValue> AnyListener<K, V> for ClusterListener<K, V> {
    fn next(&self, patience: Duration) -> Result<Option<MapEvent<K, V>>> {
        ClusterListener::next(self, patience)
    }
}

mod sealed {
    use super::{ClusterListener, ClusterMap, ClusterReads, GridMap, MapListener, MapReads};

    pub trait Sealed {}

    impl<K, V> Sealed for GridMap<K, V> {}

    impl<K, V> Sealed for ClusterMap<K, V> {}

    impl<K, V> Sealed for MapReads<K, V> {}

    impl<K, V> Sealed for ClusterReads<K, V> {}

    impl<K, V> Sealed for MapListener<K, V> {}

    impl<K, V> Sealed for ClusterListener<K, V> {}
}
