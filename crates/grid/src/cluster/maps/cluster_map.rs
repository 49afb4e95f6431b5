//! A map of the cluster, as the jobs of it use it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::node::Plain;
use ardea_codec::{Kept, state_codec_of};
use ardea_core::{Error, ErrorCode, Key, PARTITION_COUNT, PartitionId, Result, StateCodec};
use bytes::Bytes;

use super::way::way;
use super::{MapAsk, MapShape, MapTold, Swap, WHO, check_fits, check_name};
use crate::cluster::ask::{Ask, LETTER_BYTES, Shelter, Told};

/// How many keys are asked for at a time.
const AT_A_TIME: usize = 1024;

/// A map that the hosts of a cluster keep in their memory, with copies on others, for its jobs and for `ardea map`. Cheap to clone; calls block, and may come from any thread.
///
/// It is there from when a job first uses it until somebody [drops](crate::cluster::MapDesk::drop_map) it: it outlives jobs and containers, and as many hosts at a time as there are copies. What
/// is promised of a single entry is what a [`GridMap`](crate::node::GridMap) promises. In a process that is no worker of a cluster the map is in the process's own memory.
pub struct ClusterMap<K, V> {
    name: Arc<str>,
    pub(super) keys: Arc<dyn StateCodec<K>>,
    pub(super) values: Arc<dyn StateCodec<V>>,
    /// What its keys and values look like, in JSON.
    shape: Arc<str>,
    /// Whether the cluster knows that.
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

impl<K: Key + Kept, V: Kept> ClusterMap<K, V> {
    /// The map of this name. Nothing is asked of the cluster before it is used.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if that can't be a name, or keys or values can't be kept.
    pub fn new(name: &str) -> Result<Self> {
        check_name(name)?;
        let (Some(keys), Some(values)) = (state_codec_of::<K>(), state_codec_of::<V>()) else {
            let what = format!("keys or values of the map {name:?} can't leave their process");
            return Err(
                Error::new(ErrorCode::InvalidConfig, what).hint("use types that are not `Local`")
            );
        };
        let shape = MapShape::new(name, keys.schema(), values.schema())?.to_json()?;
        Ok(ClusterMap {
            name: name.into(),
            keys,
            values,
            shape: shape.into(),
            is_open: Arc::default(),
            types: PhantomData,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a key has.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if nobody answers in time; [`ErrorCode::BadRecord`] if the value is of another type.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        Ok(self.get_all(std::slice::from_ref(key))?.pop().flatten())
    }

    /// What each of the keys has, in the same order.
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

    /// What the first of these keys have: of as many as fit into a letter and its answer, of one at least if there is one.
    pub(super) fn some_bytes_of(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let mut bytes = 0;
        let fits = keys.iter().take(AT_A_TIME).take_while(|key| {
            bytes += key.len();
            bytes <= LETTER_BYTES
        });
        let asked = &keys[..fits.count()];
        match self.ask(&MapAsk::Get(asked.to_vec()))? {
            MapTold::Values(some) if !some.is_empty() && some.len() <= asked.len() => Ok(some),
            other => Err(self.no_answer(&other)),
        }
    }

    /// Where the entry of a key is: the partition of the key as it is encoded.
    ///
    /// # Errors
    /// [`ErrorCode::UserError`] if the key is larger than 1 MiB.
    pub fn partition_of(&self, key: &K) -> Result<PartitionId> {
        Ok(PartitionId::of(&Plain(self.key(key)?)))
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if nobody answers in time, [`ErrorCode::LimitReached`] if there is no room, [`ErrorCode::UserError`] if the entry is
    /// larger than 1 MiB.
    pub fn put(&self, key: &K, value: &V) -> Result<()> {
        self.write([(key, Some(value))])
    }

    /// Removes what a key has.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn remove(&self, key: &K) -> Result<()> {
        self.write([(key, None)])
    }

    /// Gives each key a value, or removes it: many at a time, in no particular order among different keys. A key comes once.
    ///
    /// # Errors
    /// The first, as of [`put`](Self::put); others may have been written.
    pub fn write<'a>(
        &self,
        entries: impl IntoIterator<Item = (&'a K, Option<&'a V>)>,
    ) -> Result<()> {
        let mut letter = Letter::default();
        for (key, value) in entries {
            let key = self.key(key)?;
            let value = value.map(|value| self.value(&key, value)).transpose()?;
            let bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
            if letter.bytes + bytes > LETTER_BYTES {
                self.send(std::mem::take(&mut letter))?;
            }
            letter.bytes += bytes + LETTER_BYTES / (4 * AT_A_TIME);
            match value {
                Some(value) => letter.puts.push((key, value)),
                None => letter.removes.push(key),
            }
        }
        self.send(letter)
    }

    fn send(&self, Letter { puts, removes, .. }: Letter) -> Result<()> {
        if puts.is_empty() && removes.is_empty() {
            return Ok(());
        }
        self.ask(&MapAsk::Write { puts, removes }).map(drop)
    }

    /// Gives each key what `combine` makes of what it has and of what is given with it, unless another one changes it meanwhile: then that is combined. A key
    /// comes once. Where an answer is lost it may be combined twice.
    ///
    /// # Errors
    /// The first, as of [`put`](Self::put); others may have been changed.
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
                swaps.push(Swap { key, had, value });
            }
            let mut is_done = self.swap(&swaps)?.into_iter();
            entries.retain(|_| is_done.next() == Some(false));
        }
        Ok(())
    }

    /// Which of them were done.
    fn swap(&self, swaps: &[Swap]) -> Result<Vec<bool>> {
        let mut done = Vec::new();
        while done.len() < swaps.len() {
            let rest = &swaps[done.len()..];
            let mut bytes = 0;
            let fits = rest.iter().take_while(|swap| {
                bytes +=
                    swap.key.len() + swap.value.len() + swap.had.as_ref().map_or(0, Bytes::len);
                bytes <= LETTER_BYTES
            });
            let count = fits.count().clamp(1, AT_A_TIME);
            let asked = &rest[..count.min(rest.len())];
            let MapTold::Values(had) = self.ask(&MapAsk::Swap(asked.to_vec()))? else {
                return Err(self.no_answer(&MapTold::Done));
            };
            if had.len() != asked.len() {
                return Err(self.no_answer(&MapTold::Values(had)));
            }
            done.extend(asked.iter().zip(had).map(|(swap, had)| swap.had == had));
        }
        Ok(done)
    }

    /// Calls `take` with each entry of a partition, in no particular order. What is there all the while is met once at least.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn scan_partition(&self, partition: PartitionId, mut take: impl FnMut(K, V)) -> Result<()> {
        let mut from = Some(0);
        while let Some(place) = from {
            let partition = partition.index();
            let read = MapAsk::Read {
                partition,
                from: place,
            };
            let MapTold::Entries(entries, next) = self.ask(&read)? else {
                return Err(self.no_answer(&MapTold::Done));
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

    fn ask(&self, ask: &MapAsk) -> Result<MapTold> {
        self.when_open(|way| self.tell(way, ask.clone()))
    }

    fn tell(&self, way: &dyn Shelter, ask: MapAsk) -> Result<MapTold> {
        match way.ask(WHO, Ask::Map(self.name.to_string(), ask))? {
            Told::Map(told) => Ok(told),
            _ => Err(self.no_answer(&MapTold::Done)),
        }
    }

    /// Does something with the map, and has it made first if it isn't there, or not any more.
    pub(super) fn when_open<T>(&self, work: impl Fn(&dyn Shelter) -> Result<T>) -> Result<T> {
        let way = way()?;
        if self.is_open.load(Ordering::Relaxed) {
            match work(&*way) {
                Err(error) if error.code() == ErrorCode::NoSuchEntry => {}
                done => return done,
            }
        }
        self.tell(&*way, MapAsk::Open(self.shape.to_string()))?;
        self.is_open.store(true, Ordering::Relaxed);
        work(&*way)
    }

    fn no_answer(&self, told: &MapTold) -> Error {
        let kind = match told {
            MapTold::Done => "nothing of the kind",
            MapTold::Values(_) => "other values",
            MapTold::Entries(..) => "entries",
        };
        let what = format!("a host answered {kind} for the map {:?}", self.name);
        Error::new(ErrorCode::BadMessage, what)
    }
}

/// What is written at a time.
#[derive(Default)]
struct Letter {
    puts: Vec<(Bytes, Bytes)>,
    removes: Vec<Bytes>,
    bytes: usize,
}

impl<K, V> fmt::Debug for ClusterMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterMap({:?})", self.name)
    }
}
