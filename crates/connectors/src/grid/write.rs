//! Sinks that make a map what the records say.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::grid::any_map::AnyMap;
use crate::grid::patience::{AGAIN, Patience};
use ardea_codec::Kept;
use ardea_core::{
    Clock, Delivery, Error, Inbox, Instance, InstanceContext, Isolation, Key, Ordinal, Outbox,
    Processor, RecordGuard, Result, Sink,
};

/// Gives the key of each record a value, as `entry` says: the materialised view of a stream of news.
///
/// The last record of a key is the one that stays, so a record that comes again after a failure changes nothing in the end (idempotent). Records of a key
/// come over one instance, whatever their number; which of them is the last is for the steps before to say: let one instance of those have all of a key, as behind `key_by`. A part of the map that can't be written at the moment is waited for; so is room in a
/// [`ClusterMap`](crate::grid::ClusterMap), and a member of a grid of one's own that is full fails the job.
pub fn put<T, K, V>(
    map: &impl AnyMap<K, V>,
    entry: impl Fn(&T) -> (K, V) + Send + Sync + 'static,
) -> Sink<T>
where
    T: Send + 'static,
    K: Key + Kept,
    V: Kept,
{
    update(map, move |record| {
        let (key, value) = entry(record);
        (key, Some(value))
    })
}

/// Removes the key of each record, as `key` says. Otherwise as [`put`].
pub fn remove<T, K, V>(
    map: &impl AnyMap<K, V>,
    key: impl Fn(&T) -> K + Send + Sync + 'static,
) -> Sink<T>
where
    T: Send + 'static,
    K: Key + Kept,
    V: Kept,
{
    update(map, move |record| (key(record), None))
}

/// Gives the key of each record a value, or removes it, as `entry` says. Otherwise as [`put`].
pub fn update<T, K, V>(
    map: &impl AnyMap<K, V>,
    entry: impl Fn(&T) -> (K, Option<V>) + Send + Sync + 'static,
) -> Sink<T>
where
    T: Send + 'static,
    K: Key + Kept,
    V: Kept,
{
    let (name, map, entry) = (format!("map {}", map.name()), map.clone(), Arc::new(entry));
    let key_of = Arc::clone(&entry);
    let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
        Ok(Box::new(WriteP {
            map: map.clone(),
            entry: Arc::clone(&entry),
            patience: Patience::default(),
            clock: Clock::system(),
            record: PhantomData::<fn(T) -> (K, V)>,
        }))
    };
    Sink::new(name, Arc::new(supply))
        .keyed(move |record| key_of(record).0)
        .isolation(Isolation::Thread)
        .delivering(Delivery::Idempotent)
}

struct WriteP<T, K, V, M, F> {
    map: M,
    entry: Arc<F>,
    patience: Patience,
    clock: Clock,
    record: PhantomData<fn(T) -> (K, V)>,
}

impl<T, K, V, M, F> Processor for WriteP<T, K, V, M, F>
where
    T: Send + 'static,
    K: Key + Kept,
    V: Kept,
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
            // They come again. What of them was written already is written once more.
            None => outbox.wake_at(self.clock.now().saturating_add(AGAIN)),
        }
        Ok(())
    }
}
