//! A sink that applies a function to what a map has.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_codec::Kept;
use ardea_core::{
    Delivery, Inbox, Instance, Isolation, Key, Ordinal, Outbox, Processor, RecordGuard, Result,
    Sink,
};
use ardea_grid::cluster::ClusterMap;
use ardea_grid::node::GridMap;

/// Changes what the key of each record has by a [function](ardea_grid::node::GridConfig::function) of the grid, where it is kept; `entry` says which key, and what
/// the function is given besides.
///
/// Records of a key are applied in their order, if they come over one instance, as they do unless told otherwise. A part of the map that can't be written fails
/// the job, since some of what was under way may have been applied: a record that comes again after a failure is applied again. Use [`put`](crate::grid::put()) where
/// the job can say what a key is to have.
pub fn merge<T, K, V, A>(
    map: &GridMap<K, V>,
    function: impl Into<String>,
    entry: impl Fn(&T) -> (K, A) + Send + Sync + 'static,
) -> Sink<T>
where
    T: Send + 'static,
    K: Key + Kept,
    V: Kept,
    A: Kept,
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
        .delivering(Delivery::AtLeastOnce)
}

/// Changes what the key of each record has in a map of the cluster: `entry` says which key, and what `combine` is given besides what the key has.
///
/// If two combine something with one key at a time each counts. A part of the map that can't be written fails the job, since some of what was under way may have been combined: a
/// record that comes again after a failure is combined again. Use [`put`](crate::grid::put()) where the job can say what a key is to have.
pub fn merge_with<T, K, V, A>(
    map: &ClusterMap<K, V>,
    entry: impl Fn(&T) -> (K, A) + Send + Sync + 'static,
    combine: impl Fn(Option<V>, &A) -> V + Send + Sync + 'static,
) -> Sink<T>
where
    T: Send + 'static,
    K: Key + Kept,
    V: Kept,
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
        .delivering(Delivery::AtLeastOnce)
}

struct MergeP<T, K, A, F, M> {
    /// Merges entries of different keys.
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
        // Many at a time, but a key once at a time: there is no order among what is under way together.
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
