//! A map whose entries are kept by all members of a grid.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ardea_codec::{Kept, state_codec_of};
use ardea_core::{Error, ErrorCode, Key, PartitionId, Result, StateCodec};
use ardea_grid::{Answer, MapId, Operation, Outcome, Refusal, When};
use bytes::Bytes;

use crate::config::MOST_BYTES;
use crate::driver::Order;
use crate::grid::Inner;

/// How many operations of one call are under way at a time.
const UNDER_WAY: usize = 4096;

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
    inner: Arc<Inner>,
    name: Arc<str>,
    id: MapId,
    time_to_live: Option<Duration>,
    keys: Arc<dyn StateCodec<K>>,
    values: Arc<dyn StateCodec<V>>,
    types: PhantomData<fn(K, V)>,
}

impl<K, V> Clone for GridMap<K, V> {
    fn clone(&self) -> Self {
        GridMap {
            inner: Arc::clone(&self.inner),
            name: Arc::clone(&self.name),
            id: self.id,
            time_to_live: self.time_to_live,
            keys: Arc::clone(&self.keys),
            values: Arc::clone(&self.values),
            types: PhantomData,
        }
    }
}

impl<K: Key + Kept, V: Kept> GridMap<K, V> {
    pub(crate) fn new(inner: Arc<Inner>, name: &str) -> Result<Self> {
        let (Some(keys), Some(values)) = (state_codec_of::<K>(), state_codec_of::<V>()) else {
            return Err(Error::new(
                ErrorCode::InvalidConfig,
                format!("keys or values of the map {name:?} can't leave their process"),
            )
            .hint("use types that are not `Local`"));
        };
        Ok(GridMap {
            inner,
            name: name.into(),
            id: MapId::named(name),
            time_to_live: None,
            keys,
            values,
            types: PhantomData,
        })
    }

    /// The same map, whose entries are gone so long after they were last put through it.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = Some(time);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a key has. Read in this thread if this member is the key's primary: then it takes less than a microsecond.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if nobody may answer within the [patience](crate::GridConfig::patience); [`ErrorCode::BadRecord`] if the
    /// value is of another type.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let mut bytes = KEY.take();
        bytes.clear();
        let found = self
            .keys
            .put(key, &mut bytes)
            .map(|()| self.read_here(key, &bytes));
        KEY.set(bytes);
        match found? {
            Some(value) => value,
            None => {
                let key_bytes = self.key(key)?;
                let get = Operation::Get {
                    map: self.id,
                    key: key_bytes,
                };
                self.value(self.ask(PartitionId::of(key), get)?)
            }
        }
    }

    /// What the key has, if this member may say.
    fn read_here(&self, key: &K, bytes: &[u8]) -> Option<Result<Option<V>>> {
        let inner = &self.inner;
        let clock = || inner.began.elapsed();
        let look = |value: Option<&[u8]>| value.map(|value| self.values.get(value)).transpose();
        inner
            .reader
            .read(clock, PartitionId::of(key), self.id, bytes, look)
            .ok()
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if nobody may write within the patience, [`ErrorCode::LimitReached`] if there is no room: then nothing was
    /// done. [`ErrorCode::StateUnknown`] if nobody knows.
    pub fn put(&self, key: &K, value: &V) -> Result<()> {
        let put = self.put_operation(key, value, When::Always)?;
        self.ask(PartitionId::of(key), put).map(drop)
    }

    /// Gives a key a value if it has none; what it had.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_if_absent(&self, key: &K, value: &V) -> Result<Option<V>> {
        let put = self.put_operation(key, value, When::Absent)?;
        self.value(self.ask(PartitionId::of(key), put)?)
    }

    /// Gives a key another value if it has this one, byte for byte as it is encoded; whether it had.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn replace(&self, key: &K, present: &V, value: &V) -> Result<bool> {
        let present = self.encoded(present)?;
        self.check_fits(present.len())?;
        let put = self.put_operation(key, value, When::Is(present.clone()))?;
        match self.ask(PartitionId::of(key), put)? {
            Answer::Value(had) => Ok(had == Some(present)),
            other => Err(self.no_answer(&other)),
        }
    }

    /// Removes what a key has; what it had.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn remove(&self, key: &K) -> Result<Option<V>> {
        let remove = Operation::Remove {
            map: self.id,
            key: self.key(key)?,
        };
        self.value(self.ask(PartitionId::of(key), remove)?)
    }

    /// Changes what a key has by a [function](crate::GridConfig::function) that is run where the key is kept; what it has then.
    ///
    /// # Errors
    /// As [`put`](Self::put), and [`ErrorCode::UserError`] if the function is not known or fails.
    pub fn compute<A: Kept>(&self, key: &K, function: &str, argument: &A) -> Result<Option<V>> {
        let Some(arguments) = state_codec_of::<A>() else {
            return Err(Error::new(
                ErrorCode::InvalidConfig,
                format!("the argument of {function:?} can't leave its process"),
            )
            .hint("use a type that is not `Local`"));
        };
        let mut bytes = Vec::new();
        arguments.put(argument, &mut bytes)?;
        let key_bytes = self.key(key)?;
        self.check_fits(key_bytes.len() + bytes.len())?;
        let compute = Operation::Compute {
            map: self.id,
            key: key_bytes,
            function: function.to_string(),
            argument: bytes.into(),
            expires: self.expires(),
        };
        self.value(self.ask(PartitionId::of(key), compute)?)
    }

    /// What each of the keys has, in the same order: those of which this member is the primary are read in this thread.
    ///
    /// # Errors
    /// The first, as of [`get`](Self::get).
    pub fn get_all(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        let mut here: Vec<Option<Option<V>>> = Vec::with_capacity(keys.len());
        for key in keys {
            here.push(self.read_here(key, &self.key(key)?).transpose()?);
        }
        let elsewhere = keys.iter().zip(&here).filter(|(_, here)| here.is_none());
        let gets = elsewhere.map(|(key, _)| {
            let get = Operation::Get {
                map: self.id,
                key: self.key(key)?,
            };
            Ok((PartitionId::of(key), get))
        });
        let mut answers = self.ask_all(gets)?.into_iter();
        let values = here.into_iter().map(|here| match here {
            Some(value) => Ok(value),
            None => self.value(answers.next().unwrap_or(Answer::Value(None))),
        });
        values.collect()
    }

    /// Gives each key its value: many at a time, in no particular order among different keys.
    ///
    /// # Errors
    /// The first, as of [`put`](Self::put); others may have been put.
    pub fn put_all<'a>(&self, entries: impl IntoIterator<Item = (&'a K, &'a V)>) -> Result<()> {
        let puts = entries.into_iter().map(|(key, value)| {
            let put = self.put_operation(key, value, When::Always)?;
            Ok((PartitionId::of(key), put))
        });
        self.ask_all(puts).map(drop)
    }

    /// Gives each key its value if it has none: many at a time. What each had, in the same order.
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
        let answers = self.ask_all(puts)?;
        answers
            .into_iter()
            .map(|answer| self.value(answer))
            .collect()
    }

    /// Removes what these keys have: many at a time, and nothing of it travels.
    ///
    /// # Errors
    /// The first, as of [`put`](Self::put); others may be gone.
    pub fn remove_all<'a>(&self, keys: impl IntoIterator<Item = &'a K>) -> Result<()> {
        let forgets = keys.into_iter().map(|key| {
            let forget = Operation::Forget {
                map: self.id,
                key: self.key(key)?,
            };
            Ok((PartitionId::of(key), forget))
        });
        self.ask_all(forgets).map(drop)
    }

    /// How many entries there are; those that have expired a short while ago may be counted.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn size(&self) -> Result<u64> {
        let counts = self.ask_all(
            self.partitions()
                .map(|partition| Ok((partition, Operation::Count(self.id)))),
        )?;
        let count = |answer: Answer| match answer {
            Answer::Count(count) => Ok(count),
            other => Err(self.no_answer(&other)),
        };
        counts.into_iter().map(count).sum()
    }

    /// Removes all entries, partition by partition.
    ///
    /// # Errors
    /// As [`put`](Self::put); some may be gone.
    pub fn clear(&self) -> Result<()> {
        let clear = self
            .partitions()
            .map(|partition| Ok((partition, Operation::Clear(self.id))));
        self.ask_all(clear).map(drop)
    }

    /// Calls `take` with each entry, in no particular order, until it says no. What is there all the while is met once at least; what comes or goes
    /// meanwhile may be met or not.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn scan(&self, mut take: impl FnMut(K, V) -> bool) -> Result<()> {
        let mut ahead: Vec<(PartitionId, u64)> = self.partitions().map(|it| (it, 0)).collect();
        while !ahead.is_empty() {
            let now = ahead.split_off(ahead.len().saturating_sub(PAGES));
            let scans = now.iter().map(|(partition, from)| {
                let scan = Operation::Scan {
                    map: self.id,
                    from: *from,
                    bytes: PAGE_BYTES,
                };
                Ok((*partition, scan))
            });
            let answers = self.ask_all(scans)?;
            for ((partition, _), answer) in now.iter().zip(answers) {
                let Answer::Page(entries, next) = answer else {
                    return Err(self.no_answer(&answer));
                };
                for (key, value) in entries {
                    if !take(self.keys.get(&key)?, self.values.get(&value)?) {
                        return Ok(());
                    }
                }
                ahead.extend(next.map(|place| (*partition, place)));
            }
        }
        Ok(())
    }

    fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<K, V> {
        (0..ardea_core::PARTITION_COUNT).filter_map(PartitionId::from_index)
    }

    fn key(&self, key: &K) -> Result<Bytes> {
        let mut bytes = Vec::new();
        self.keys.put(key, &mut bytes)?;
        self.check_fits(bytes.len())?;
        Ok(bytes.into())
    }

    fn check_fits(&self, bytes: usize) -> Result<()> {
        if bytes <= MOST_BYTES {
            return Ok(());
        }
        let name = &self.name;
        let what = format!("an entry of {bytes} bytes is too large for the map {name:?}");
        Err(Error::new(ErrorCode::LimitReached, what).hint(format!(
            "at most {MOST_BYTES} bytes are taken: keep large things elsewhere, and where they are here"
        )))
    }

    fn encoded(&self, value: &V) -> Result<Bytes> {
        let mut bytes = Vec::new();
        self.values.put(value, &mut bytes)?;
        Ok(bytes.into())
    }

    fn expires(&self) -> Option<i64> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let at = now.checked_add(self.time_to_live?)?;
        i64::try_from(at.as_micros()).ok()
    }

    fn put_operation(&self, key: &K, value: &V, when: When) -> Result<Operation> {
        let (key, value) = (self.key(key)?, self.encoded(value)?);
        self.check_fits(key.len() + value.len())?;
        Ok(Operation::Put {
            map: self.id,
            key,
            value,
            expires: self.expires(),
            when,
        })
    }

    fn value(&self, answer: Answer) -> Result<Option<V>> {
        match answer {
            Answer::Value(value) => value.map(|value| self.values.get(&value)).transpose(),
            other => Err(self.no_answer(&other)),
        }
    }

    fn ask(&self, partition: PartitionId, operation: Operation) -> Result<Answer> {
        let (tell, told) = channel();
        self.order(partition, operation, 0, tell)?;
        match told.recv() {
            Ok((_, outcome)) => self.judge(outcome),
            Err(_) => Err(self.is_stopped()),
        }
    }

    /// Has all of it done, many at a time; the answers in the same order.
    fn ask_all(
        &self,
        operations: impl Iterator<Item = Result<(PartitionId, Operation)>>,
    ) -> Result<Vec<Answer>> {
        let (tell, told) = channel();
        let mut answers: Vec<Option<Answer>> = Vec::new();
        let mut under_way = 0;
        let hear = |answers: &mut Vec<Option<Answer>>| -> Result<()> {
            let (number, outcome) = told.recv().map_err(|_| self.is_stopped())?;
            answers[number as usize] = Some(self.judge(outcome)?);
            Ok(())
        };
        for operation in operations {
            let (partition, operation) = operation?;
            if under_way == UNDER_WAY {
                hear(&mut answers)?;
                under_way -= 1;
            }
            self.order(partition, operation, answers.len() as u64, tell.clone())?;
            answers.push(None);
            under_way += 1;
        }
        drop(tell);
        for _ in 0..under_way {
            hear(&mut answers)?;
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn order(
        &self,
        partition: PartitionId,
        operation: Operation,
        number: u64,
        tell: Sender<(u64, Outcome)>,
    ) -> Result<()> {
        let order = Order::Ask(partition, operation, number, tell);
        self.inner.orders.send(order).map_err(|_| self.is_stopped())
    }

    fn judge(&self, outcome: Outcome) -> Result<Answer> {
        let name = &self.name;
        Err(match outcome {
            Outcome::Answered(answer) => return Ok(answer),
            Outcome::Unknown => Error::new(
                ErrorCode::StateUnknown,
                format!("the member that keeps this part of the map {name:?} was lost: a write was done, or was not"),
            )
            .hint("read the key, then decide"),
            Outcome::Refused(Refusal::CutOff) => Error::new(
                ErrorCode::StateUnavailable,
                format!("the map {name:?} can't be used here: a majority of the grid's members can't be reached"),
            )
            .hint("nothing was done; it works again when they can be reached, or are proven to be dead"),
            Outcome::Refused(Refusal::NotPrimary | Refusal::Moving) => Error::new(
                ErrorCode::StateUnavailable,
                format!("a part of the map {name:?} is being moved to another member"),
            )
            .hint("nothing was done; try again"),
            Outcome::Refused(Refusal::Full { used, limit }) => Error::new(
                ErrorCode::LimitReached,
                format!("a member has no room for the map {name:?}: it keeps {used} bytes of at most {limit}"),
            )
            .hint("remove entries, add members, or raise their limit"),
            Outcome::Refused(Refusal::Function(why)) => Error::new(
                ErrorCode::UserError,
                format!("a function on the map {name:?} failed: {why}"),
            ),
        })
    }

    fn no_answer(&self, answer: &Answer) -> Error {
        Error::new(
            ErrorCode::Internal,
            format!(
                "a member answered something else for the map {:?}: {answer:?}",
                self.name
            ),
        )
    }

    fn is_stopped(&self) -> Error {
        Error::new(
            ErrorCode::StateUnavailable,
            format!(
                "the map {:?} can't be used: this process's member of the grid has stopped",
                self.name
            ),
        )
    }
}

impl<K, V> fmt::Debug for GridMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GridMap({:?})", self.name)
    }
}
