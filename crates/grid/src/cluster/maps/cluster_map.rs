//! Typed map of the cluster, for jobs.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::node::RawBytes;
use ardea_codec::{StateValue, state_codec_of};
use ardea_core::{Error, ErrorCode, Key, PARTITION_COUNT, PartitionId, Result, StateCodec};
use bytes::Bytes;

use super::client_registry::store_client;
use super::{CompareAndSet, MAPS_JOB, MapRequest, MapResponse, MapSchema, check_fits, check_name};
use crate::cluster::request::{GridStoreClient, MESSAGE_BYTES, StoreRequest, StoreResponse};

/// Maximum number of keys per request.
const AT_A_TIME: usize = 1024;

/// A replicated map in the memory of a cluster's hosts, for its jobs and for `ardea map`. Cheap to
/// clone. Calls block and may be made from any thread.
///
/// A map is created when a job first uses it, and exists until it is
/// [dropped](crate::cluster::MapService::drop_map). It outlives jobs and containers, and as many
/// simultaneous host failures as there are backups. Consistency of a single entry is that of
/// [`GridMap`](crate::node::GridMap). In a process outside of a cluster the map is in the process's
/// own memory.
pub struct ClusterMap<K, V> {
    name: Arc<str>,
    pub(super) keys: Arc<dyn StateCodec<K>>,
    pub(super) values: Arc<dyn StateCodec<V>>,
    /// Schema of keys and values, in JSON.
    shape: Arc<str>,
    /// True once the map has been opened with this schema.
    is_open: Arc<AtomicBool>,
    types: PhantomData<fn(K, V)>,
}

impl<K, V> Clone for ClusterMap<K, V> {
    fn clone(&self) -> Self {
        ClusterMap {
            name: Arc::clone(&self.name),
            keys: Arc::clone(&self.keys),
            values: Arc::clone(&self.values),
            shape: Arc::clone(&self.shape),
            is_open: Arc::clone(&self.is_open),
            types: PhantomData,
        }
    }
}

impl<K: Key + StateValue, V: StateValue> ClusterMap<K, V> {
    /// Creates a handle of the map with this name. Sends no request before the first use.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if the name is invalid, or keys or values cannot be serialized.
    pub fn new(name: &str) -> Result<Self> {
        check_name(name)?;
        let (Some(keys), Some(values)) = (state_codec_of::<K>(), state_codec_of::<V>()) else {
            let what = format!("keys or values of the map {name:?} cannot be serialized");
            return Err(
                Error::new(ErrorCode::InvalidConfig, what).hint("use types that are not `Local`")
            );
        };
        let shape = MapSchema::new(name, keys.schema(), values.schema())?.to_json()?;
        Ok(ClusterMap {
            name: name.into(),
            keys,
            values,
            shape: shape.into(),
            is_open: Arc::default(),
            types: PhantomData,
        })
    }

    /// Returns the map's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if no host responds in time; [`ErrorCode::BadRecord`] if the
    /// value is of another type.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        Ok(self.get_all(std::slice::from_ref(key))?.pop().flatten())
    }

    /// Returns the values of keys, in the same order.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_all(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        let values = self.bytes_of(keys)?.into_iter();
        let values = values.map(|value| value.map(|value| self.values.get(&value)).transpose());
        values.collect()
    }

    fn bytes_of(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let keys: Result<Vec<Bytes>> = keys.iter().map(|key| self.key(key)).collect();
        let (keys, mut values) = (keys?, Vec::new());
        while values.len() < keys.len() {
            values.extend(self.some_bytes_of(&keys[values.len()..])?);
        }
        Ok(values)
    }

    /// Returns the values of the first of `keys`: as many as fit into a request and its response,
    /// at least one if there are keys.
    pub(super) fn some_bytes_of(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let mut bytes = 0;
        let fits = keys.iter().take(AT_A_TIME).take_while(|key| {
            bytes += key.len();
            bytes <= MESSAGE_BYTES
        });
        let asked = &keys[..fits.count()];
        match self.ask(&MapRequest::Get(asked.to_vec()))? {
            MapResponse::Values(some) if !some.is_empty() && some.len() <= asked.len() => Ok(some),
            other => Err(self.no_answer(&other)),
        }
    }

    /// Returns the partition of a key, determined by its encoded form.
    ///
    /// # Errors
    /// [`ErrorCode::UserError`] if the key is larger than 1 MiB.
    pub fn partition_of(&self, key: &K) -> Result<PartitionId> {
        Ok(PartitionId::of(&RawBytes(self.key(key)?)))
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if no host responds in time, [`ErrorCode::LimitReached`] if
    /// the memory limit is reached, [`ErrorCode::UserError`] if the entry is larger than 1 MiB.
    pub fn put(&self, key: &K, value: &V) -> Result<()> {
        self.write([(key, Some(value))])
    }

    /// Removes the entry of a key.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn remove(&self, key: &K) -> Result<()> {
        self.write([(key, None)])
    }

    /// Puts or removes many entries, in no particular order among different keys. A key must not
    /// occur twice.
    ///
    /// # Errors
    /// The first error, as of [`put`](Self::put); other entries may have been written.
    pub fn write<'a>(
        &self,
        entries: impl IntoIterator<Item = (&'a K, Option<&'a V>)>,
    ) -> Result<()> {
        let mut letter = WriteBatch::default();
        for (key, value) in entries {
            let key = self.key(key)?;
            let value = value.map(|value| self.value(&key, value)).transpose()?;
            let bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
            if letter.bytes + bytes > MESSAGE_BYTES {
                self.send(std::mem::take(&mut letter))?;
            }
            letter.bytes += bytes + MESSAGE_BYTES / (4 * AT_A_TIME);
            match value {
                Some(value) => letter.puts.push((key, value)),
                None => letter.removes.push(key),
            }
        }
        self.send(letter)
    }

    fn send(&self, WriteBatch { puts, removes, .. }: WriteBatch) -> Result<()> {
        if puts.is_empty() && removes.is_empty() {
            return Ok(());
        }
        self.ask(&MapRequest::Write { puts, removes }).map(drop)
    }

    /// Sets the value of each key to `combine` of its current value and the given argument. If an
    /// entry changes concurrently, `combine` is called again with the new value. A key must not
    /// occur twice. If a response is lost, an argument may be combined twice.
    ///
    /// # Errors
    /// The first error, as of [`put`](Self::put); other entries may have been changed.
    pub fn merge_all<A>(
        &self,
        mut entries: Vec<(K, A)>,
        combine: impl Fn(Option<V>, &A) -> V,
    ) -> Result<()> {
        while !entries.is_empty() {
            let keys: Vec<K> = entries.iter().map(|(key, _)| key.clone()).collect();
            let had = self.bytes_of(&keys)?;
            let mut swaps = Vec::new();
            for ((key, more), had) in entries.iter().zip(had) {
                let before = had.as_ref().map(|had| self.values.get(had)).transpose()?;
                let key = self.key(key)?;
                let value = self.value(&key, &combine(before, more))?;
                swaps.push(CompareAndSet { key, had, value });
            }
            let mut is_done = self.swap(&swaps)?.into_iter();
            entries.retain(|_| is_done.next() == Some(false));
        }
        Ok(())
    }

    /// Performs compare-and-sets. Returns true for each that succeeded, in the same order.
    fn swap(&self, swaps: &[CompareAndSet]) -> Result<Vec<bool>> {
        let mut done = Vec::new();
        while done.len() < swaps.len() {
            let rest = &swaps[done.len()..];
            let mut bytes = 0;
            let fits = rest.iter().take_while(|swap| {
                bytes +=
                    swap.key.len() + swap.value.len() + swap.had.as_ref().map_or(0, Bytes::len);
                bytes <= MESSAGE_BYTES
            });
            let count = fits.count().clamp(1, AT_A_TIME);
            let asked = &rest[..count.min(rest.len())];
            let MapResponse::Values(had) = self.ask(&MapRequest::Swap(asked.to_vec()))? else {
                return Err(self.no_answer(&MapResponse::Done));
            };
            if had.len() != asked.len() {
                return Err(self.no_answer(&MapResponse::Values(had)));
            }
            done.extend(asked.iter().zip(had).map(|(swap, had)| swap.had == had));
        }
        Ok(done)
    }

    /// Calls `take` with each entry of a partition, in no particular order. Entries present during
    /// the whole scan are passed at least once.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn scan_partition(&self, partition: PartitionId, mut take: impl FnMut(K, V)) -> Result<()> {
        let mut from = Some(0);
        while let Some(place) = from {
            let partition = partition.index();
            let read = MapRequest::Read {
                partition,
                from: place,
            };
            let MapResponse::Entries(entries, next) = self.ask(&read)? else {
                return Err(self.no_answer(&MapResponse::Done));
            };
            for (key, value) in entries {
                take(self.keys.get(&key)?, self.values.get(&value)?);
            }
            from = next;
        }
        Ok(())
    }

    /// Calls `take` with each entry, as [`scan_partition`](Self::scan_partition).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn scan(&self, mut take: impl FnMut(K, V)) -> Result<()> {
        let mut partitions = (0..PARTITION_COUNT).filter_map(PartitionId::from_index);
        partitions.try_for_each(|partition| self.scan_partition(partition, &mut take))
    }

    pub(super) fn key(&self, key: &K) -> Result<Bytes> {
        let mut bytes = Vec::new();
        self.keys.put(key, &mut bytes)?;
        check_fits(&self.name, bytes.len())?;
        Ok(bytes.into())
    }

    fn value(&self, key: &Bytes, value: &V) -> Result<Bytes> {
        let mut bytes = Vec::new();
        self.values.put(value, &mut bytes)?;
        check_fits(&self.name, key.len() + bytes.len())?;
        Ok(bytes.into())
    }

    fn ask(&self, ask: &MapRequest) -> Result<MapResponse> {
        self.when_open(|way| self.send_request(way, ask.clone()))
    }

    fn send_request(&self, way: &dyn GridStoreClient, ask: MapRequest) -> Result<MapResponse> {
        match way.request(MAPS_JOB, StoreRequest::Map(self.name.to_string(), ask))? {
            StoreResponse::Map(told) => Ok(told),
            _ => Err(self.no_answer(&MapResponse::Done)),
        }
    }

    /// Runs `work` on the map, and opens it first if it does not exist or has been dropped.
    pub(super) fn when_open<T>(
        &self,
        work: impl Fn(&dyn GridStoreClient) -> Result<T>,
    ) -> Result<T> {
        let way = store_client()?;
        if self.is_open.load(Ordering::Relaxed) {
            match work(&*way) {
                Err(error) if error.code() == ErrorCode::NoSuchEntry => {}
                done => return done,
            }
        }
        self.send_request(&*way, MapRequest::Open(self.shape.to_string()))?;
        self.is_open.store(true, Ordering::Relaxed);
        work(&*way)
    }

    fn no_answer(&self, told: &MapResponse) -> Error {
        let kind = match told {
            MapResponse::Done => "nothing of the kind",
            MapResponse::Values(_) => "other values",
            MapResponse::Entries(..) => "entries",
        };
        let what = format!("a host answered {kind} for the map {:?}", self.name);
        Error::new(ErrorCode::BadMessage, what)
    }
}

/// Puts and removes of one request.
#[derive(Default)]
struct WriteBatch {
    puts: Vec<(Bytes, Bytes)>,
    removes: Vec<Bytes>,
    bytes: usize,
}

impl<K, V> fmt::Debug for ClusterMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterMap({:?})", self.name)
    }
}
