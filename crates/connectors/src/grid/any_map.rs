//! What sources, sinks and steps need of a map, wherever it is.

use std::collections::HashMap;
use std::time::Duration;

use ardea_codec::Kept;
use ardea_core::{Error, ErrorCode, Key, PartitionId, Result, Waker};
use ardea_grid::cluster::{ClusterListener, ClusterMap, ClusterReads};
use ardea_grid::node::{GridMap, MapEvent, MapListener, MapReads, Read};

/// A map that a job can read and write: a [`GridMap`], of a member in its own process, or a [`ClusterMap`], which the hosts of its cluster keep. No other type is
/// one.
pub trait AnyMap<K, V>: sealed::Sealed + Clone + Send + Sync + 'static {
    /// Reads that nobody waits for.
    type Reads: AnyReads<K, V>;

    /// Hears what happens to it.
    type Listener: AnyListener<K, V>;

    /// Its name.
    fn name(&self) -> &str;

    /// Gives keys values, or removes them.
    ///
    /// # Errors
    /// The first; others may have been written.
    fn write(&self, entries: &HashMap<K, Option<V>>) -> Result<()>;

    /// Calls `take` with each entry of a partition.
    ///
    /// # Errors
    /// Some may have been taken.
    fn read(&self, partition: PartitionId, take: impl FnMut(K, V)) -> Result<()>;

    /// In which partition a key is.
    ///
    /// # Errors
    /// If the key can't be one of the map.
    fn partition_of(&self, key: &K) -> Result<PartitionId>;

    /// Reads of the map that nobody waits for: the waker is woken when there are answers.
    fn reads(&self, waker: Waker) -> Self::Reads;

    /// Hears all that happens to the map from now on.
    ///
    /// # Errors
    /// If it can't be heard of.
    fn listen(&self) -> Result<Self::Listener>;

    /// Whether what failed is waited for.
    fn waits_for(&self, error: &Error) -> bool {
        matches!(
            error.code(),
            ErrorCode::StateUnavailable | ErrorCode::StateUnknown
        )
    }

    /// Whether a listener that failed so hears more later.
    fn hears_after(&self, _: &Error) -> bool {
        false
    }
}

/// Reads of a map by who must not wait: [`MapReads`] or [`ClusterReads`]. Never blocks.
pub trait AnyReads<K, V>: sealed::Sealed + Send + 'static {
    /// What a key has, if that is known here; else it is asked for, if not too much is under way.
    ///
    /// # Errors
    /// If the key can't be one of the map, or the map can't be read at the moment.
    fn get(&mut self, key: &K) -> Result<Read<V>>;

    /// The next answer that has come, in any order, with its number; none if none has.
    fn answer(&mut self) -> Option<(u64, Result<Option<V>>)>;
}

/// Hears what happens to a map: [`MapListener`] or [`ClusterListener`].
pub trait AnyListener<K, V>: sealed::Sealed + Send + 'static {
    /// What happened next, when there is something; none if nothing happens for so long.
    ///
    /// # Errors
    /// If nothing can be heard of the map, or the entry is of another type.
    fn next(&self, patience: Duration) -> Result<Option<MapEvent<K, V>>>;
}

impl<K: Key + Kept, V: Kept> AnyMap<K, V> for GridMap<K, V> {
    type Reads = MapReads<K, V>;
    type Listener = MapListener<K, V>;

    fn name(&self) -> &str {
        GridMap::name(self)
    }

    /// Many at a time, and all before what comes next: so what comes later stays.
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

impl<K: Key + Kept, V: Kept> AnyReads<K, V> for MapReads<K, V> {
    fn get(&mut self, key: &K) -> Result<Read<V>> {
        MapReads::get(self, key)
    }

    fn answer(&mut self) -> Option<(u64, Result<Option<V>>)> {
        MapReads::answer(self)
    }
}

impl<K: Key + Kept, V: Kept> AnyListener<K, V> for MapListener<K, V> {
    fn next(&self, patience: Duration) -> Result<Option<MapEvent<K, V>>> {
        MapListener::next(self, patience)
    }
}

impl<K: Key + Kept, V: Kept> AnyMap<K, V> for ClusterMap<K, V> {
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

    /// Room as well: somebody makes some, or starts another host.
    fn waits_for(&self, error: &Error) -> bool {
        matches!(
            error.code(),
            ErrorCode::StateUnavailable | ErrorCode::StateUnknown | ErrorCode::LimitReached
        )
    }

    /// It listens to another host then.
    fn hears_after(&self, error: &Error) -> bool {
        self.waits_for(error)
    }
}

impl<K: Key + Kept, V: Kept> AnyReads<K, V> for ClusterReads<K, V> {
    fn get(&mut self, key: &K) -> Result<Read<V>> {
        ClusterReads::get(self, key)
    }

    fn answer(&mut self) -> Option<(u64, Result<Option<V>>)> {
        ClusterReads::answer(self)
    }
}

impl<K: Key + Kept, V: Kept> AnyListener<K, V> for ClusterListener<K, V> {
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
