//! Distributed map whose entries are partitioned over all members of a grid.

mod coder;
mod encode_buffer;
mod near_cache;
mod put_batches;
mod reads;
mod size_and_clear;

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::protocol::{Answer, MapId, Operation, When};
use ardea_codec::{StateValue, state_codec_of};
use ardea_core::{Error, ErrorCode, Key, PartitionId, Result, StateCodec};
use bytes::Bytes;

use crate::node::client::GridClient;
use crate::node::config::MOST_BYTES;
use crate::node::grid::Inner;
use crate::node::listener::{MapListener, Queue};
use crate::node::near_cache::CachedEntries;
use crate::node::raw_bytes::RawBytes;

use near_cache::Keep;
use put_batches::{PutBatches, Puts};

pub(crate) use coder::Coder;
pub use reads::{MapReads, Read};

/// Approximate size of a page of a scan, in bytes, and the number of partitions scanned at a time.
const PAGE_BYTES: u32 = 256 << 10;
const PAGES: usize = 64;

thread_local! {
    /// Buffer for encoded keys of reads.
    static KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Distributed map whose entries are partitioned over all members of a grid. Cheap to clone. Calls
/// block and may be made from any thread.
///
/// Operations on a single key are linearizable. Operations on several keys are carried out key by
/// key. A write that fails with [`ErrorCode::OutcomeUnknown`] may have been carried out, may be
/// carried out later, or never: the connection to the primary was lost.
///
/// Keys are encoded like values, so that they can be listed. The partition of a key is determined
/// by its hash, as everywhere in Ardea.
pub struct GridMap<K, V> {
    asking: GridClient,
    time_to_live: Option<Duration>,
    coder: Coder<K, V>,
    near: Option<Arc<CachedEntries>>,
    types: PhantomData<fn(K, V)>,
}

/// Entries of a scan, and the position of the next page if there may be more.
pub type Page<K, V> = (Vec<(K, V)>, Option<u64>);

impl<K, V> Clone for GridMap<K, V> {
    fn clone(&self) -> Self {
        GridMap {
            asking: self.asking.clone(),
            time_to_live: self.time_to_live,
            coder: self.coder.clone(),
            near: self.near.clone(),
            types: PhantomData,
        }
    }
}

impl GridMap<RawBytes, RawBytes> {
    pub(crate) fn of_guest(inner: Arc<Inner>, name: &str) -> Self {
        GridMap::with(inner, (name, MapId::of_guest(name)), Coder::plain())
    }
}

impl<K: Key + StateValue> GridMap<K, RawBytes> {
    pub(crate) fn of_bytes(inner: Arc<Inner>, name: &str) -> Result<Self> {
        let coder = Coder::of_bytes().ok_or_else(|| is_local(name))?;
        Ok(GridMap::with(inner, (name, MapId::named(name)), coder))
    }
}

/// Returns the error for types that cannot be serialized.
fn is_local(name: &str) -> Error {
    Error::new(
        ErrorCode::InvalidConfig,
        format!("keys or values of the map {name:?} cannot be serialized"),
    )
    .hint("use types that are not `Local`")
}

impl<K: Key + StateValue, V: StateValue> GridMap<K, V> {
    pub(crate) fn new(inner: Arc<Inner>, name: &str) -> Result<Self> {
        let coder = Coder::of_types().ok_or_else(|| is_local(name))?;
        Ok(GridMap::with(inner, (name, MapId::named(name)), coder))
    }

    fn with(inner: Arc<Inner>, (name, id): (&str, MapId), coder: Coder<K, V>) -> Self {
        GridMap {
            asking: GridClient::of(inner, ("map", name), id),
            time_to_live: None,
            coder,
            near: None,
            types: PhantomData,
        }
    }

    /// Returns a handle of the same map. An entry put through this handle expires after `time`,
    /// unless it is put again.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = Some(time);
        self
    }

    /// Returns the map's name.
    pub fn name(&self) -> &str {
        self.asking.name()
    }

    /// Returns the value of a key. Reads in the calling thread, without a message, if this member
    /// is the key's primary.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if no member may answer within the
    /// [timeout](crate::node::GridConfig::operation_timeout); [`ErrorCode::BadRecord`] if the value
    /// is of another type.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        self.asking.check_outside()?;
        let mut bytes = KEY.take();
        bytes.clear();
        let written = self.coder.put_key(key, &mut bytes);
        let found = written.map(|()| self.read_here(key, &bytes));
        KEY.set(bytes);
        match found? {
            Some(value) => value,
            None => self.read_there(key),
        }
    }

    /// Reads a key locally, if this member is its primary or has it in the near-cache. Returns
    /// `None` if the value must be requested from the primary.
    fn read_here(&self, key: &K, bytes: &[u8]) -> Option<Result<Option<V>>> {
        let inner = &self.asking.inner;
        let clock = || inner.clock.now();
        let look = |value: Option<&[u8]>| value.map(|value| self.coder.value(value)).transpose();
        let partition = PartitionId::of(key);
        match inner
            .reader
            .read(clock, partition, self.asking.id, bytes, look)
        {
            Ok(value) => Some(value),
            Err(_) => self.read_near(partition.index(), bytes),
        }
    }

    /// Reads a key from its primary.
    fn read_there(&self, key: &K) -> Result<Option<V>> {
        let (partition, bytes) = (PartitionId::of(key), self.key(key)?);
        let keep = self.to_keep(partition, &bytes);
        let get = Operation::Get {
            map: self.asking.id,
            key: bytes,
        };
        let answer = self.asking.ask(partition, get)?;
        self.keep_near(keep, &answer);
        self.value(answer)
    }

    /// Watches all changes of the map.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_grid::node::{Grid, GridConfig, MapEvent};
    ///
    /// let grid = Grid::start(GridConfig::new("harbour"))?;
    /// let berths = grid.map::<String, u32>("berths")?;
    /// let news = berths.listen()?;
    /// berths.put(&"seagull".to_string(), &7)?;
    /// let told = news.next(Duration::from_secs(10))?;
    /// assert_eq!(told, Some(MapEvent::Added("seagull".to_string(), 7)));
    /// # Ok::<(), ardea_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if some partitions cannot be watched within the timeout.
    pub fn listen(&self) -> Result<MapListener<K, V>> {
        self.listener(Queue::new(None))
    }

    /// Watches all changes of one key.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_to(&self, key: &K) -> Result<MapListener<K, V>> {
        let partition = PartitionId::of(key).index();
        self.listener(Queue::new(Some((partition, self.key(key)?))))
    }

    fn listener(&self, queue: Queue) -> Result<MapListener<K, V>> {
        let (queue, standing) = (Arc::new(queue), Arc::clone(&self.asking.inner.standing));
        // On an error the listener is dropped, which closes the queue.
        let ear = Arc::clone(&queue);
        let listener = MapListener::new(queue, self.coder.clone(), standing);
        self.asking.register_listener(ear)?;
        Ok(listener)
    }

    fn write(&self, key: &K, operation: Operation) -> Result<Answer> {
        let outcome = self.asking.ask(PartitionId::of(key), operation);
        self.wrote(key);
        outcome
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if no member may write within the timeout,
    /// [`ErrorCode::LimitReached`] if the memory limit is reached; in both cases nothing was
    /// written. [`ErrorCode::OutcomeUnknown`] if it is unknown whether the write was carried out.
    pub fn put(&self, key: &K, value: &V) -> Result<()> {
        let put = self.put_operation(key, value, When::Always)?;
        self.write(key, put).map(drop)
    }

    /// Sets the value of a key that has none. Returns the previous value.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_if_absent(&self, key: &K, value: &V) -> Result<Option<V>> {
        let put = self.put_operation(key, value, When::Absent)?;
        self.value(self.write(key, put)?)
    }

    /// Replaces the value of a key by `value` if the current value equals `present` in encoded
    /// form. Returns true if it was replaced.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn replace(&self, key: &K, present: &V, value: &V) -> Result<bool> {
        let present = self.encoded(present)?;
        self.check_fits(present.len())?;
        let put = self.put_operation(key, value, When::Is(present.clone()))?;
        match self.write(key, put)? {
            Answer::Value(had) => Ok(had == Some(present)),
            other => Err(self.asking.unexpected_answer(&other)),
        }
    }

    /// Removes the entry of a key. Returns the previous value.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn remove(&self, key: &K) -> Result<Option<V>> {
        let remove = Operation::Remove {
            map: self.asking.id,
            key: self.key(key)?,
        };
        self.value(self.write(key, remove)?)
    }

    /// Changes the value of a key by a [function](crate::node::GridConfig::function) that runs on
    /// the key's primary. Returns the new value.
    ///
    /// # Errors
    /// As [`put`](Self::put), and [`ErrorCode::UserError`] if the function is unknown or fails.
    pub fn compute<A: StateValue>(
        &self,
        key: &K,
        function: &str,
        argument: &A,
    ) -> Result<Option<V>> {
        let arguments = self.arguments::<A>(function)?;
        let mut bytes = Vec::new();
        arguments.put(argument, &mut bytes)?;
        let compute = self.compute_operation(key, function, bytes)?;
        self.value(self.write(key, compute)?)
    }

    fn arguments<A: StateValue>(&self, function: &str) -> Result<Arc<dyn StateCodec<A>>> {
        state_codec_of::<A>().ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidConfig,
                format!("the argument of {function:?} cannot be serialized"),
            )
            .hint("use a type that is not `Local`")
        })
    }

    fn compute_operation(&self, key: &K, function: &str, argument: Vec<u8>) -> Result<Operation> {
        let key_bytes = self.key(key)?;
        self.check_fits(key_bytes.len() + argument.len())?;
        Ok(Operation::Compute {
            map: self.asking.id,
            key: key_bytes,
            function: function.to_string(),
            argument: argument.into(),
            expires: self.expires(),
        })
    }

    /// Returns the values of keys, in the same order. Keys of which this member is the primary are
    /// read in the calling thread.
    ///
    /// # Errors
    /// The first error, as of [`get`](Self::get).
    pub fn get_all(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        self.asking.check_outside()?;
        let mut values: Vec<Option<V>> = keys.iter().map(|_| None).collect();
        let mut there = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let bytes = self.key(key)?;
            match self.read_here(key, &bytes) {
                Some(value) => values[at] = value?,
                None => there.push((at, PartitionId::of(key), bytes)),
            }
        }
        let to_keep =
            |(_, partition, key): &(usize, PartitionId, Bytes)| self.to_keep(*partition, key);
        let mut keeps: Vec<Option<Keep>> = there.iter().map(to_keep).collect();
        let gets = there.iter().map(|(_, partition, key)| {
            let (map, key) = (self.asking.id, key.clone());
            Ok((*partition, Operation::Get { map, key }))
        });
        self.asking.run_all(gets, |number, answer| {
            self.keep_near(keeps[number].take(), &answer);
            values[there[number].0] = self.value(answer)?;
            Ok(())
        })?;
        Ok(values)
    }

    /// Puts many entries, in no particular order; if a key occurs several times, the last value
    /// remains. The iterator may be of any length. Up to 8 MB of entries are gathered at a time, so
    /// that those of one partition are sent together.
    ///
    /// # Errors
    /// The first error, as of [`put`](Self::put). Other entries may have been put; no more follow
    /// after the return unless the error is [`ErrorCode::OutcomeUnknown`]. If the memory limit is
    /// reached, none of the entries sent together for a partition is put.
    pub fn put_all<'a>(&self, entries: impl IntoIterator<Item = (&'a K, &'a V)>) -> Result<()> {
        let puts = Puts {
            map: self.asking.id,
            coder: &self.coder,
            fits: |bytes| self.check_fits(bytes),
            expiry: || self.expires(),
        };
        let bunches = PutBatches::new(puts, entries.into_iter());
        let outcome = self.asking.run_in_partition_order(bunches);
        self.wrote_all();
        outcome
    }

    /// Puts the entries whose keys have no value, many at a time. Returns the previous values in
    /// the same order. If a key occurs several times, it gets one of its values.
    ///
    /// # Errors
    /// The first error, as of [`put`](Self::put); others may have been put.
    pub fn put_all_if_absent<'a>(
        &self,
        entries: impl IntoIterator<Item = (&'a K, &'a V)>,
    ) -> Result<Vec<Option<V>>> {
        let puts = entries.into_iter().map(|(key, value)| {
            let put = self.put_operation(key, value, When::Absent)?;
            Ok((PartitionId::of(key), put))
        });
        let mut had: Vec<(usize, Option<V>)> = Vec::new();
        let outcome = self.asking.run_all(puts, |number, answer| {
            had.push((number, self.value(answer)?));
            Ok(())
        });
        self.wrote_all();
        outcome?;
        had.sort_unstable_by_key(|(number, _)| *number);
        Ok(had.into_iter().map(|(_, value)| value).collect())
    }

    /// Removes many entries, without returning their values.
    ///
    /// # Errors
    /// The first error, as of [`put`](Self::put); others may have been removed.
    pub fn remove_all<'a>(&self, keys: impl IntoIterator<Item = &'a K>) -> Result<()> {
        let forgets = keys.into_iter().map(|key| {
            let forget = Operation::Forget {
                map: self.asking.id,
                key: self.key(key)?,
            };
            Ok((PartitionId::of(key), forget))
        });
        let outcome = self.asking.run_all(forgets, |_, _| Ok(()));
        self.wrote_all();
        outcome
    }

    /// Changes the values of many keys by a [function](Self::compute). If a key occurs several
    /// times, the order is undefined.
    ///
    /// # Errors
    /// The first error, as of [`compute`](Self::compute); others may have been changed.
    pub fn compute_all<'a, A: StateValue>(
        &self,
        function: &str,
        entries: impl IntoIterator<Item = (&'a K, &'a A)>,
    ) -> Result<()> {
        let arguments = self.arguments::<A>(function)?;
        let computes = entries.into_iter().map(|(key, argument)| {
            let mut bytes = Vec::new();
            arguments.put(argument, &mut bytes)?;
            Ok((
                PartitionId::of(key),
                self.compute_operation(key, function, bytes)?,
            ))
        });
        let outcome = self.asking.run_all(computes, |_, _| Ok(()));
        self.wrote_all();
        outcome
    }

    /// Calls `take` with each entry, in no particular order, until it returns false. Entries
    /// present during the whole scan are passed at least once. Entries added or removed meanwhile
    /// may be passed or not.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn scan(&self, take: impl FnMut(K, V) -> bool) -> Result<()> {
        self.scan_partitions(self.partitions(), take)
    }

    /// Like [`scan`](Self::scan) for some partitions, for example those with
    /// [missed](crate::node::MapEvent::Missed) events.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn scan_partitions(
        &self,
        partitions: impl IntoIterator<Item = PartitionId>,
        mut take: impl FnMut(K, V) -> bool,
    ) -> Result<()> {
        let mut ahead: Vec<(PartitionId, u64)> = partitions.into_iter().map(|it| (it, 0)).collect();
        let mut wants = true;
        while wants && !ahead.is_empty() {
            let now = ahead.split_off(ahead.len().saturating_sub(PAGES));
            let scans = now.iter().map(|(partition, from)| {
                let scan = Operation::Scan {
                    map: self.asking.id,
                    from: *from,
                    bytes: PAGE_BYTES,
                };
                Ok((*partition, scan))
            });
            self.asking.run_all(scans, |number, answer| {
                let Answer::Page(entries, next) = answer else {
                    return Err(self.asking.unexpected_answer(&answer));
                };
                for (key, value) in entries {
                    wants = wants && take(self.coder.key(&key)?, self.coder.value_of(value)?);
                    if !wants {
                        return Ok(());
                    }
                }
                ahead.extend(next.map(|place| (now[number].0, place)));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Returns some entries of a partition from a position on: 0 at first, then the position
    /// returned with the previous page. Entries present during the whole scan are in at least one
    /// page.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn page(&self, partition: PartitionId, from: u64) -> Result<Page<K, V>> {
        let scan = Operation::Scan {
            map: self.asking.id,
            from,
            bytes: PAGE_BYTES,
        };
        let (entries, next) = match self.asking.ask(partition, scan)? {
            Answer::Page(entries, next) => (entries, next),
            other => return Err(self.asking.unexpected_answer(&other)),
        };
        let entries = entries.into_iter();
        let entries =
            entries.map(|(key, value)| Ok((self.coder.key(&key)?, self.coder.value_of(value)?)));
        Ok((entries.collect::<Result<_>>()?, next))
    }

    fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<K, V> {
        (0..ardea_core::PARTITION_COUNT).filter_map(PartitionId::from_index)
    }

    fn key(&self, key: &K) -> Result<Bytes> {
        let mut bytes = Vec::new();
        self.coder.put_key(key, &mut bytes)?;
        self.check_fits(bytes.len())?;
        Ok(bytes.into())
    }

    fn check_fits(&self, bytes: usize) -> Result<()> {
        if bytes <= MOST_BYTES {
            return Ok(());
        }
        let name = self.name();
        let what = format!("an entry of {bytes} bytes is too large for the map {name:?}");
        Err(Error::new(ErrorCode::LimitReached, what).hint(format!(
            "the limit is {MOST_BYTES} bytes: store large objects elsewhere, and a reference to them here"
        )))
    }

    fn encoded(&self, value: &V) -> Result<Bytes> {
        let mut bytes = Vec::new();
        self.coder.put_value(value, &mut bytes)?;
        Ok(bytes.into())
    }

    fn expires(&self) -> Option<i64> {
        let time = self.time_to_live?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let at = now.checked_add(time)?;
        i64::try_from(at.as_micros()).ok()
    }

    fn put_operation(&self, key: &K, value: &V, when: When) -> Result<Operation> {
        let fits = |bytes| self.check_fits(bytes);
        let (key, value) = self.coder.entry(key, value, fits)?;
        Ok(Operation::Put {
            map: self.asking.id,
            key,
            value,
            expires: self.expires(),
            when,
        })
    }

    fn value(&self, answer: Answer) -> Result<Option<V>> {
        match answer {
            Answer::Value(value) => value.map(|value| self.coder.value_of(value)).transpose(),
            other => Err(self.asking.unexpected_answer(&other)),
        }
    }
}

impl<K, V> fmt::Debug for GridMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GridMap({:?})", self.asking.name())
    }
}
