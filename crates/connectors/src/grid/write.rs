//! Sinks that write map entries.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_codec::StateValue;
use ardea_core::{Delivery, Error, Key, Result, Sink, Timestamp};

use crate::grid::any_map::AnyMap;
use crate::grid::retry::{RETRY_DELAY, RetryUntilAvailable};
use crate::sink_builder::{SinkBuilder, SinkWriter};

/// Creates a sink that writes an entry for each record: the key and value returned by `entry`. The
/// map becomes a materialized view of the stream.
///
/// The last record of a key wins, so replayed records have no lasting effect (idempotent). Records
/// of a key are written by one instance, regardless of the parallelism. Their order must be defined
/// by earlier steps: one instance should process all records of a key, as after `key_by`. The sink
/// waits for unavailable partitions, and for space in a [`ClusterMap`](crate::grid::ClusterMap). If
/// a member of an embedded grid is full, the job fails.
pub fn put<T, K, V>(
    map: &impl AnyMap<K, V>,
    entry: impl Fn(&T) -> (K, V) + Send + Sync + 'static,
) -> Sink<T>
where
    T: Send + 'static,
    K: Key + StateValue,
    V: StateValue,
{
    update(map, move |record| {
        let (key, value) = entry(record);
        (key, Some(value))
    })
}

/// Creates a sink that removes the key returned by `key` for each record. Otherwise like [`put`].
pub fn remove<T, K, V>(
    map: &impl AnyMap<K, V>,
    key: impl Fn(&T) -> K + Send + Sync + 'static,
) -> Sink<T>
where
    T: Send + 'static,
    K: Key + StateValue,
    V: StateValue,
{
    update(map, move |record| (key(record), None))
}

/// Creates a sink that sets the key returned by `entry` to the returned value, or removes the key
/// if the value is `None`. Otherwise like [`put`].
pub fn update<T, K, V>(
    map: &impl AnyMap<K, V>,
    entry: impl Fn(&T) -> (K, Option<V>) + Send + Sync + 'static,
) -> Sink<T>
where
    T: Send + 'static,
    K: Key + StateValue,
    V: StateValue,
{
    let (name, map, entry) = (format!("map {}", map.name()), map.clone(), Arc::new(entry));
    let key_of = Arc::clone(&entry);
    let make = move |_| MapWriter {
        retry: RetryUntilAvailable::new(map.name()),
        map: map.clone(),
        entry: Arc::clone(&entry),
        pending: HashMap::new(),
        record: PhantomData::<fn(T)>,
    };
    SinkBuilder::new(name)
        .blocking()
        .writer(make)
        .keyed(move |record| key_of(record).0)
        .with_delivery(Delivery::Idempotent)
}

/// Writer that sets entries of a map.
struct MapWriter<T, K, V, M, F> {
    map: M,
    entry: Arc<F>,
    retry: RetryUntilAvailable,
    /// The last value of each key that is not written yet.
    pending: HashMap<K, Option<V>>,
    record: PhantomData<fn(T)>,
}

impl<T, K, V, M, F> SinkWriter for MapWriter<T, K, V, M, F>
where
    T: Send + 'static,
    K: Key + StateValue,
    V: StateValue,
    M: AnyMap<K, V>,
    F: Fn(&T) -> (K, Option<V>) + Send + Sync + 'static,
{
    type Record = T;

    fn has_room(&mut self) -> Result<bool> {
        self.poll(RETRY_DELAY)
    }

    fn write(&mut self, record: &T, _: Timestamp, _: u64) -> Result<bool> {
        let (key, value) = (self.entry)(record);
        self.pending.insert(key, value);
        Ok(true)
    }

    /// Writes the entries, including those already written by an attempt that failed.
    fn poll(&mut self, wait: Duration) -> Result<bool> {
        if self.pending.is_empty() {
            return Ok(true);
        }
        let outcome = self.map.write(&self.pending);
        let waits = |error: &Error| self.map.waits_for(error);
        let is_written = self.retry.judge_by(waits, outcome)?.is_some();
        match is_written {
            true => self.pending.clear(),
            false => std::thread::park_timeout(wait),
        }
        Ok(is_written)
    }
}
