//! Sink that applies a function to map values.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_codec::StateValue;
use ardea_core::{
    Delivery, Inbox, Instance, Isolation, Key, Ordinal, Outbox, Processor, RecordGuard, Result,
    Sink,
};
use ardea_grid::cluster::ClusterMap;
use ardea_grid::node::GridMap;

/// Creates a sink that updates the value of each record's key. A registered
/// [function](ardea_grid::node::GridConfig::function) of the grid computes the value on the key's
/// primary. `entry` returns the key and the function's argument.
///
/// Records of a key are applied in order if they pass through one instance, which is the default. A
/// failed write fails the job, because some pending updates may have been applied. Records replayed
/// after a failure are applied again. Use [`put`](crate::grid::put()) if the job can compute the
/// final value.
pub fn merge<T, K, V, A>(
    map: &GridMap<K, V>,
    function: impl Into<String>,
    entry: impl Fn(&T) -> (K, A) + Send + Sync + 'static,
) -> Sink<T>
where
    T: Send + 'static,
    K: Key + StateValue,
    V: StateValue,
    A: StateValue,
{
    let (name, map) = (format!("map {}", map.name()), map.clone());
    let function: String = function.into();
    let (function, entry): (Arc<str>, _) = (function.into(), Arc::new(entry));
    let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
        let (map, function) = (map.clone(), Arc::clone(&function));
        let merge = move |entries: &[(K, A)]| {
            let entries = entries.iter();
            map.compute_all(&function, entries.map(|(key, argument)| (key, argument)))
        };
        Ok(Box::new(MergeP {
            merge,
            entry: Arc::clone(&entry),
            record: PhantomData::<fn(T) -> (K, A)>,
        }))
    };
    Sink::new(name, Arc::new(supply))
        .isolation(Isolation::Thread)
        .with_delivery(Delivery::AtLeastOnce)
}

/// Creates a sink that updates the value of each record's key in a map of the cluster. `entry`
/// returns the key and an argument; `combine` computes the new value from the current value and the
/// argument.
///
/// Concurrent updates of a key are all applied. A failed write fails the job, because some pending
/// updates may have been applied. Records replayed after a failure are applied again. Use
/// [`put`](crate::grid::put()) if the job can compute the final value.
pub fn merge_with<T, K, V, A>(
    map: &ClusterMap<K, V>,
    entry: impl Fn(&T) -> (K, A) + Send + Sync + 'static,
    combine: impl Fn(Option<V>, &A) -> V + Send + Sync + 'static,
) -> Sink<T>
where
    T: Send + 'static,
    K: Key + StateValue,
    V: StateValue,
    A: Clone + Send + 'static,
{
    let (name, map) = (format!("map {}", map.name()), map.clone());
    let (entry, combine) = (Arc::new(entry), Arc::new(combine));
    let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
        let (map, combine) = (map.clone(), Arc::clone(&combine));
        Ok(Box::new(MergeP {
            merge: move |entries: &[(K, A)]| map.merge_all(entries.to_vec(), &*combine),
            entry: Arc::clone(&entry),
            record: PhantomData::<fn(T) -> (K, A)>,
        }))
    };
    Sink::new(name, Arc::new(supply))
        .isolation(Isolation::Thread)
        .with_delivery(Delivery::AtLeastOnce)
}

struct MergeP<T, K, A, F, M> {
    /// Merge function for entries with distinct keys.
    merge: M,
    entry: Arc<F>,
    record: PhantomData<fn(T) -> (K, A)>,
}

impl<T, K, A, F, M> Processor for MergeP<T, K, A, F, M>
where
    T: Send + 'static,
    K: Key,
    A: Send + 'static,
    F: Fn(&T) -> (K, A) + Send + Sync + 'static,
    M: Fn(&[(K, A)]) -> Result<()> + Send + 'static,
{
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<T>()?;
        let mut guard = RecordGuard::new();
        let mut entries = Vec::with_capacity(rows.len());
        for record in rows.values() {
            entries.push((self.entry)(record));
            guard.advance();
        }
        drop(guard);
        // Entries are merged in batches with distinct keys, because entries of one batch have no
        // order.
        let mut rest = &entries[..];
        while !rest.is_empty() {
            let mut keys = HashSet::new();
            let again = rest.iter().position(|(key, _)| !keys.insert(key));
            let count = again.unwrap_or(rest.len());
            let (now, later) = rest.split_at(count);
            (self.merge)(now)?;
            rest = later;
        }
        rows.clear();
        Ok(())
    }
}
