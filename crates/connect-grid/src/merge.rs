//! A sink that applies a function to what a map has.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_codec::Kept;
use ardea_core::{
    Delivery, Inbox, Instance, Isolation, Key, Ordinal, Outbox, Processor, RecordGuard, Result,
    Sink,
};
use ardea_grid_net::GridMap;

/// Changes what the key of each record has by a [function](ardea_grid_net::GridConfig::function) of the grid, where it is kept; `entry` says which key, and what
/// the function is given besides.
///
/// Records of a key are applied in their order, if they come over one instance, as they do unless told otherwise. A part of the map that can't be written fails
/// the job, since some of what was under way may have been applied: a record that comes again after a failure is applied again. Use [`put`](crate::put()) where
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
        Ok(Box::new(MergeP {
            map: map.clone(),
            function: Arc::clone(&function),
            entry: Arc::clone(&entry),
            record: PhantomData::<fn(T) -> A>,
        }))
    };
    Sink::new(name, Arc::new(supply))
        .isolation(Isolation::Thread)
        .delivering(Delivery::AtLeastOnce)
}

struct MergeP<T, K, V, A, F> {
    map: GridMap<K, V>,
    function: Arc<str>,
    entry: Arc<F>,
    record: PhantomData<fn(T) -> A>,
}

impl<T, K, V, A, F> Processor for MergeP<T, K, V, A, F>
where
    T: Send + 'static,
    K: Key + Kept,
    V: Kept,
    A: Kept,
    F: Fn(&T) -> (K, A) + Send + Sync + 'static,
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
            let now = now.iter().map(|(key, argument)| (key, argument));
            self.map.compute_all(&self.function, now)?;
            rest = later;
        }
        rows.clear();
        Ok(())
    }
}
