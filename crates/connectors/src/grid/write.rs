//! Sinks that write map entries.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::grid::any_map::AnyMap;
use crate::grid::retry::{RETRY_DELAY, RetryUntilAvailable};
use ardea_codec::StateValue;
use ardea_core::{
    Clock, Delivery, Error, Inbox, Instance, InstanceContext, Isolation, Key, Ordinal, Outbox,
    Processor, RecordGuard, Result, Sink,
};

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
    let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
        Ok(Box::new(WriteP {
            map: map.clone(),
            entry: Arc::clone(&entry),
            patience: RetryUntilAvailable::default(),
            clock: Clock::system(),
            record: PhantomData::<fn(T) -> (K, V)>,
        }))
    };
    Sink::new(name, Arc::new(supply))
        .keyed(move |record| key_of(record).0)
        .isolation(Isolation::Thread)
        .with_delivery(Delivery::Idempotent)
}

struct WriteP<T, K, V, M, F> {
    map: M,
    entry: Arc<F>,
    patience: RetryUntilAvailable,
    clock: Clock,
    record: PhantomData<fn(T) -> (K, V)>,
}

impl<T, K, V, M, F> Processor for WriteP<T, K, V, M, F>
where
    T: Send + 'static,
    K: Key + StateValue,
    V: StateValue,
    M: AnyMap<K, V>,
    F: Fn(&T) -> (K, Option<V>) + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<T>()?;
        let mut last = HashMap::with_capacity(rows.len());
        let mut guard = RecordGuard::new();
        for record in rows.values() {
            let (key, value) = (self.entry)(record);
            last.insert(key, value);
            guard.advance();
        }
        drop(guard);
        let outcome = self.map.write(&last);
        let waits = |error: &Error| self.map.waits_for(error);
        match self.patience.judge_by(waits, self.map.name(), outcome)? {
            Some(()) => rows.clear(),
            // The records stay in the inbox and are written again, including those already written.
            None => outbox.wake_at(self.clock.now().saturating_add(RETRY_DELAY)),
        }
        Ok(())
    }
}
