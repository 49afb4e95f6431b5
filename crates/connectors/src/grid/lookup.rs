//! Looking up in a map.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_codec::Kept;
use ardea_core::{
    Clock, Error, Inbox, Instance, InstanceContext, Key, Ordinal, Outbox, Processor, Result,
};
use ardea_grid::node::Read;

use crate::grid::any_map::{AnyMap, AnyReads};
use crate::grid::patience::{AGAIN, Patience};

/// How many records are looked up at a time.
const AT_A_TIME: usize = 1024;

/// A step that makes a record of each record and of what a map has of its key, for the step `custom` of a pipeline: `join` gets the record, and none if
/// the map has nothing.
///
/// It never blocks, and keeps the order of the records; some thousand are looked up at a time. Of a [`GridMap`](crate::grid::GridMap) what this process's member is the primary of, or has
/// [near](crate::grid::GridMap::near_cache), is read at once; all else takes a way to another member and back. Of a [`ClusterMap`](crate::grid::ClusterMap) all that waits is asked of a host
/// together, by a thread that each instance has for it. Each record is joined with what the map has at one moment
/// while it is looked up: a job that goes on from a snapshot joins what comes again with what the map has then.
///
/// It remembers nothing.
pub fn lookup<T, K, V, U, F, J, M>(
    map: &M,
    key: F,
    join: J,
) -> impl Fn(Instance) -> Lookup<T, K, V, U, F, J, M> + Send + Sync + 'static
where
    M: AnyMap<K, V>,
    T: Send + 'static,
    K: Key + Kept,
    V: Kept,
    U: Send + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    J: Fn(T, Option<V>) -> U + Send + Sync + 'static,
{
    let (map, key, join) = (map.clone(), Arc::new(key), Arc::new(join));
    move |_| Lookup {
        map: map.clone(),
        key: Arc::clone(&key),
        join: Arc::clone(&join),
        reads: None,
        asked: VecDeque::new(),
        patience: Patience::default(),
        clock: Clock::system(),
        types: PhantomData,
    }
}

/// The processor of [`lookup()`].
pub struct Lookup<T, K, V, U, F, J, M: AnyMap<K, V>> {
    map: M,
    key: Arc<F>,
    join: Arc<J>,
    reads: Option<M::Reads>,
    /// What has become of the first records in the inbox, in their order.
    asked: VecDeque<Asked<V>>,
    patience: Patience,
    clock: Clock,
    types: PhantomData<fn(T, K) -> U>,
}

/// What has become of a record.
enum Asked<V> {
    /// Nothing yet, or nothing that helps.
    Not,
    /// Its answer will have this number.
    Under(u64),
    Known(Option<V>),
}

impl<T, K, V, U, F, J, M> Lookup<T, K, V, U, F, J, M>
where
    M: AnyMap<K, V>,
    T: Send + 'static,
    K: Key + Kept,
    V: Kept,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    /// Asks for what has not been asked for, as far as that goes; whether some has to wait.
    fn ask(&mut self, records: &[T]) -> Result<bool> {
        let Some(reads) = &mut self.reads else {
            return Ok(true);
        };
        while self.asked.len() < records.len().min(AT_A_TIME) {
            self.asked.push_back(Asked::Not);
        }
        for (asked, record) in self.asked.iter_mut().zip(records) {
            if !matches!(asked, Asked::Not) {
                continue;
            }
            let read = reads.get(&(self.key)(record));
            let waits = |error: &Error| self.map.waits_for(error);
            match self.patience.judge_by(waits, self.map.name(), read)? {
                Some(Read::Here(value)) => *asked = Asked::Known(value),
                Some(Read::Later(number)) => *asked = Asked::Under(number),
                Some(Read::NotNow) | None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Takes the answers that have come; whether some have to be asked for again.
    fn hear(&mut self) -> Result<bool> {
        let mut again = false;
        while let Some((number, answer)) = self.reads.as_mut().and_then(AnyReads::answer) {
            let is_it =
                |asked: &&mut Asked<V>| matches!(asked, Asked::Under(its) if *its == number);
            let Some(asked) = self.asked.iter_mut().find(is_it) else {
                continue;
            };
            let waits = |error: &Error| self.map.waits_for(error);
            *asked = match self.patience.judge_by(waits, self.map.name(), answer)? {
                Some(value) => Asked::Known(value),
                None => {
                    again = true;
                    Asked::Not
                }
            };
        }
        Ok(again)
    }
}

impl<T, K, V, U, F, J, M> Processor for Lookup<T, K, V, U, F, J, M>
where
    M: AnyMap<K, V>,
    T: Send + 'static,
    K: Key + Kept,
    V: Kept,
    U: Send + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    J: Fn(T, Option<V>) -> U + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        self.reads = Some(self.map.reads(context.waker.clone()));
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<T>()?;
        let mut waits = self.hear()?;
        // What has just failed is not asked for again at once.
        if !waits {
            waits = self.ask(rows.values())?;
        }
        let mut lane = outbox.lane::<U>(Ordinal::FIRST)?;
        let is_known = |asked: &&Asked<V>| matches!(asked, Asked::Known(_));
        let known = self.asked.iter().take_while(is_known).count();
        let count = known.min(lane.room());
        let answers = self.asked.drain(..count);
        for ((record, time), answer) in rows.drain_front(count).zip(answers) {
            if let Asked::Known(value) = answer {
                lane.push((self.join)(record, value), time);
            }
        }
        if waits {
            outbox.wake_at(self.clock.now().saturating_add(AGAIN));
        }
        Ok(())
    }

    fn close(&mut self) {
        self.reads = None;
        self.asked.clear();
    }
}

impl<T, K, V, U, F, J, M: AnyMap<K, V>> fmt::Debug for Lookup<T, K, V, U, F, J, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, asked) = (self.map.name(), self.asked.len());
        write!(f, "Lookup({name:?}, {asked} under way)")
    }
}
