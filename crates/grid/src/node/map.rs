//! A map whose entries are kept by all members of a grid.

mod amounts;
mod bunches;
mod coder;
mod nearby;
mod pen;
mod reads;

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::protocol::{Answer, MapId, Operation, When};
use ardea_codec::{Kept, state_codec_of};
use ardea_core::{Error, ErrorCode, Key, PartitionId, Result, StateCodec};
use bytes::Bytes;

use crate::node::asking::Asking;
use crate::node::config::MOST_BYTES;
use crate::node::grid::Inner;
use crate::node::listener::{MapListener, Queue};
use crate::node::near::Near;
use crate::node::plain::Plain;

use bunches::{Bunches, Puts};
use nearby::Keep;

pub(crate) use coder::Coder;
pub use reads::{MapReads, Read};

/// About how many bytes of entries a scan asks for at a time, of each of so many partitions.
const PAGE_BYTES: u32 = 256 << 10;
const PAGES: usize = 64;

thread_local! {
    /// Where keys are written that are read.
    static KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A map whose entries are kept by all members of a grid. Cheap to clone; calls block, and may come from any thread.
///
/// Each operation on one key is done at one moment while it is under way, seen by all (it is linearizable). What has several keys is done key by key. A
/// write that ends with [`ErrorCode::StateUnknown`] was done, or was not, or will still be: its member was lost on the way.
///
/// Keys are encoded as their values are, so that they can be listed; which member has a key is decided by its hash, as everywhere.
pub struct GridMap<K, V> {
    asking: Asking,
    time_to_live: Option<Duration>,
    coder: Coder<K, V>,
    near: Option<Arc<Near>>,
    types: PhantomData<fn(K, V)>,
}

/// Entries, and from where there may be more.
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

impl GridMap<Plain, Plain> {
    pub(crate) fn of_guest(inner: Arc<Inner>, name: &str) -> Self {
        GridMap::with(inner, (name, MapId::of_guest(name)), Coder::plain())
    }
}

impl<K: Key + Kept> GridMap<K, Plain> {
    pub(crate) fn of_bytes(inner: Arc<Inner>, name: &str) -> Result<Self> {
        let coder = Coder::of_bytes().ok_or_else(|| is_local(name))?;
        Ok(GridMap::with(inner, (name, MapId::named(name)), coder))
    }
}

/// Entries of a map can't be written.
fn is_local(name: &str) -> Error {
    Error::new(
        ErrorCode::InvalidConfig,
        format!("keys or values of the map {name:?} can't leave their process"),
    )
    .hint("use types that are not `Local`")
}

impl<K: Key + Kept, V: Kept> GridMap<K, V> {
    pub(crate) fn new(inner: Arc<Inner>, name: &str) -> Result<Self> {
        let coder = Coder::of_types().ok_or_else(|| is_local(name))?;
        Ok(GridMap::with(inner, (name, MapId::named(name)), coder))
    }

    fn with(inner: Arc<Inner>, (name, id): (&str, MapId), coder: Coder<K, V>) -> Self {
        GridMap {
            asking: Asking::of(inner, ("map", name), id),
            time_to_live: None,
            coder,
            near: None,
            types: PhantomData,
        }
    }

    /// The same map, whose entries are gone so long after they were last put through it.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = Some(time);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.asking.name()
    }

    /// What a key has. Read in this thread if this member is the key's primary: then it takes less than a microsecond.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if nobody may answer within the [patience](crate::node::GridConfig::patience); [`ErrorCode::BadRecord`] if the
    /// value is of another type.
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

    /// What the key has, if this member may say, or keeps it near.
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

    /// What the key has, as its primary says.
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

    /// Hears all that happens to the map from now on.
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
    /// [`ErrorCode::StateUnavailable`] if some parts of the map can't be heard of within the patience.
    pub fn listen(&self) -> Result<MapListener<K, V>> {
        self.listener(Queue::new(None))
    }

    /// Hears all that happens to one key from now on.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_to(&self, key: &K) -> Result<MapListener<K, V>> {
        let partition = PartitionId::of(key).index();
        self.listener(Queue::new(Some((partition, self.key(key)?))))
    }

    fn listener(&self, queue: Queue) -> Result<MapListener<K, V>> {
        let (queue, standing) = (Arc::new(queue), Arc::clone(&self.asking.inner.standing));
        // If nothing is heard it is dropped, and so its queue is closed.
        let ear = Arc::clone(&queue);
        let listener = MapListener::new(queue, self.coder.clone(), standing);
        self.asking.hear(ear)?;
        Ok(listener)
    }

    fn write(&self, key: &K, operation: Operation) -> Result<Answer> {
        let outcome = self.asking.ask(PartitionId::of(key), operation);
        self.wrote(key);
        outcome
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if nobody may write within the patience, [`ErrorCode::LimitReached`] if there is no room: then nothing was
    /// done. [`ErrorCode::StateUnknown`] if nobody knows.
    pub fn put(&self, key: &K, value: &V) -> Result<()> {
        let put = self.put_operation(key, value, When::Always)?;
        self.write(key, put).map(drop)
    }

    /// Gives a key a value if it has none; what it had.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_if_absent(&self, key: &K, value: &V) -> Result<Option<V>> {
        let put = self.put_operation(key, value, When::Absent)?;
        self.value(self.write(key, put)?)
    }

    /// Gives a key another value if it has this one, byte for byte as it is encoded; whether it had.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn replace(&self, key: &K, present: &V, value: &V) -> Result<bool> {
        let present = self.encoded(present)?;
        self.check_fits(present.len())?;
        let put = self.put_operation(key, value, When::Is(present.clone()))?;
        match self.write(key, put)? {
            Answer::Value(had) => Ok(had == Some(present)),
            other => Err(self.asking.no_answer(&other)),
        }
    }

    /// Removes what a key has; what it had.
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

    /// Changes what a key has by a [function](crate::node::GridConfig::function) that is run where the key is kept; what it has then.
    ///
    /// # Errors
    /// As [`put`](Self::put), and [`ErrorCode::UserError`] if the function is not known or fails.
    pub fn compute<A: Kept>(&self, key: &K, function: &str, argument: &A) -> Result<Option<V>> {
        let arguments = self.arguments::<A>(function)?;
        let mut bytes = Vec::new();
        arguments.put(argument, &mut bytes)?;
        let compute = self.compute_operation(key, function, bytes)?;
        self.value(self.write(key, compute)?)
    }

    fn arguments<A: Kept>(&self, function: &str) -> Result<Arc<dyn StateCodec<A>>> {
        state_codec_of::<A>().ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidConfig,
                format!("the argument of {function:?} can't leave its process"),
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

    /// What each of the keys has, in the same order: those of which this member is the primary are read in this thread.
    ///
    /// # Errors
    /// The first, as of [`get`](Self::get).
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
        self.asking.ask_each(gets, |number, answer| {
            self.keep_near(keeps[number].take(), &answer);
            values[there[number].0] = self.value(answer)?;
            Ok(())
        })?;
        Ok(values)
    }

    /// Gives each key its value: many at a time, in no particular order; but a key that comes twice has what comes last. Takes them as they can be put: there may be
    /// any number. Up to 8 MB of them are gathered before they are, so that those of one partition go together.
    ///
    /// # Errors
    /// The first, as of [`put`](Self::put); others may have been put, and none is any more unless it is [`ErrorCode::StateUnknown`]. If there is no room for those of one partition that go together none of these is.
    pub fn put_all<'a>(&self, entries: impl IntoIterator<Item = (&'a K, &'a V)>) -> Result<()> {
        let puts = Puts {
            map: self.asking.id,
            coder: &self.coder,
            fits: |bytes| self.check_fits(bytes),
            expiry: || self.expires(),
        };
        let bunches = Bunches::new(puts, entries.into_iter());
        let outcome = self.asking.ask_in_turn(bunches);
        self.wrote_all();
        outcome
    }

    /// Gives each key its value if it has none: many at a time. What each had, in the same order. If a key comes several times, it gets one of these.
    ///
    /// # Errors
    /// The first, as of [`put`](Self::put); others may have been put.
    pub fn put_all_if_absent<'a>(
        &self,
        entries: impl IntoIterator<Item = (&'a K, &'a V)>,
    ) -> Result<Vec<Option<V>>> {
        let puts = entries.into_iter().map(|(key, value)| {
            let put = self.put_operation(key, value, When::Absent)?;
            Ok((PartitionId::of(key), put))
        });
        let mut had: Vec<(usize, Option<V>)> = Vec::new();
        let outcome = self.asking.ask_each(puts, |number, answer| {
            had.push((number, self.value(answer)?));
            Ok(())
        });
        self.wrote_all();
        outcome?;
        had.sort_unstable_by_key(|(number, _)| *number);
        Ok(had.into_iter().map(|(_, value)| value).collect())
    }

    /// Removes what these keys have: many at a time, and nothing of it travels.
    ///
    /// # Errors
    /// The first, as of [`put`](Self::put); others may be gone.
    pub fn remove_all<'a>(&self, keys: impl IntoIterator<Item = &'a K>) -> Result<()> {
        let forgets = keys.into_iter().map(|key| {
            let forget = Operation::Forget {
                map: self.asking.id,
                key: self.key(key)?,
            };
            Ok((PartitionId::of(key), forget))
        });
        let outcome = self.asking.ask_each(forgets, |_, _| Ok(()));
        self.wrote_all();
        outcome
    }

    /// Changes what each of the keys has by a [function](Self::compute), many at a time. If a key comes several times, there is no order among these.
    ///
    /// # Errors
    /// The first, as of [`compute`](Self::compute); others may have been changed.
    pub fn compute_all<'a, A: Kept>(
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
        let outcome = self.asking.ask_each(computes, |_, _| Ok(()));
        self.wrote_all();
        outcome
    }

    /// Calls `take` with each entry, in no particular order, until it says no. What is there all the while is met once at least; what comes or goes
    /// meanwhile may be met or not.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn scan(&self, take: impl FnMut(K, V) -> bool) -> Result<()> {
        self.scan_partitions(self.partitions(), take)
    }

    /// Calls `take` with each entry of some partitions, as [`scan`](Self::scan) does with all: where something was
    /// [missed](crate::node::MapEvent::Missed).
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
            self.asking.ask_each(scans, |number, answer| {
                let Answer::Page(entries, next) = answer else {
                    return Err(self.asking.no_answer(&answer));
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

    /// Some entries of a partition, from a place on: zero at first, then what the page before has told, if it has told that there may be more. What is there all the while
    /// is met once at least, in all pages together.
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
            other => return Err(self.asking.no_answer(&other)),
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
            "at most {MOST_BYTES} bytes are taken: keep large things elsewhere, and where they are here"
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
            other => Err(self.asking.no_answer(&other)),
        }
    }
}

impl<K, V> fmt::Debug for GridMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GridMap({:?})", self.asking.name())
    }
}
