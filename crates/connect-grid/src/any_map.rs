//! What sources and sinks need of a map, wherever it is.

use std::collections::HashMap;

use ardea_codec::Kept;
use ardea_core::{Error, ErrorCode, Key, PartitionId, Result};
use ardea_grid_net::GridMap;
use ardea_shelter::ClusterMap;

/// A map that a job can read and write: a [`GridMap`], of a member in its own process, or a [`ClusterMap`], which the hosts of its cluster keep. No other type is
/// one.
pub trait AnyMap<K, V>: sealed::Sealed + Clone + Send + Sync + 'static {
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

    /// Whether what failed is waited for.
    fn waits_for(&self, error: &Error) -> bool {
        matches!(
            error.code(),
            ErrorCode::StateUnavailable | ErrorCode::StateUnknown
        )
    }
}

impl<K: Key + Kept, V: Kept> AnyMap<K, V> for GridMap<K, V> {
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
}

impl<K: Key + Kept, V: Kept> AnyMap<K, V> for ClusterMap<K, V> {
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

    /// Room as well: somebody makes some, or starts another host.
    fn waits_for(&self, error: &Error) -> bool {
        matches!(
            error.code(),
            ErrorCode::StateUnavailable | ErrorCode::StateUnknown | ErrorCode::LimitReached
        )
    }
}

mod sealed {
    use super::{ClusterMap, GridMap};

    pub trait Sealed {}

    impl<K, V> Sealed for GridMap<K, V> {}

    impl<K, V> Sealed for ClusterMap<K, V> {}
}
