//! Lookup step for maps.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_codec::StateValue;
use ardea_core::{
    Clock, Error, Inbox, Instance, InstanceContext, Key, Ordinal, Outbox, Processor, Result,
};
use ardea_grid::node::Read;

use crate::grid::any_map::{AnyMap, AnyReads};
use crate::grid::retry::{RETRY_DELAY, RetryUntilAvailable};

/// Maximum number of pending lookups.
const AT_A_TIME: usize = 1024;

/// Creates a lookup for the step `custom` of a pipeline. `join` combines each record with the map's
/// value of its key, or `None`.
///
/// The lookup never blocks and keeps the order of the records; up to 1,024 lookups are pending at a
/// time. In a [`GridMap`](crate::grid::GridMap), keys whose primary is this process's member, or
/// that are in the [near cache](crate::grid::GridMap::near_cache), are read immediately; other keys
/// take a round trip to another member. In a [`ClusterMap`](crate::grid::ClusterMap), all pending
/// keys are requested from a host in batches, by one thread per instance. Each record is joined
/// with the map's value at some moment during its lookup. After a restore, a replayed record is
/// joined with the value at the time of the replay.
///
/// The lookup has no state.
pub fn lookup<T, K, V, U, F, J, M>(
    map: &M,
    key: F,
    join: J,
) -> impl Fn(Instance) -> Lookup<T, K, V, U, F, J, M> + Send + Sync + 'static
where
    M: AnyMap<K, V>,
    T: Send + 'static,
    K: Key + StateValue,
    V: StateValue,
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
        patience: RetryUntilAvailable::new(map.name()),
        clock: Clock::system(),
        types: PhantomData,
    }
}

/// Processor of [`lookup()`].
pub struct Lookup<T, K, V, U, F, J, M: AnyMap<K, V>> {
    map: M,
    key: Arc<F>,
    join: Arc<J>,
    reads: Option<M::Reads>,
    /// State of the lookups of the first records in the inbox, in order.
    asked: VecDeque<LookupState<V>>,
    patience: RetryUntilAvailable,
    clock: Clock,
    types: PhantomData<fn(T, K) -> U>,
}

/// State of the lookup of a record.
enum LookupState<V> {
    /// The key was not requested yet, or is requested again.
    Not,
    /// The key was requested under this number.
    Under(u64),
    Known(Option<V>),
}

impl<T, K, V, U, F, J, M> Lookup<T, K, V, U, F, J, M>
where
    M: AnyMap<K, V>,
    T: Send + 'static,
    K: Key + StateValue,
    V: StateValue,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    /// Requests the keys not requested yet, as far as possible; returns true if some must wait.
    fn request_keys(&mut self, records: &[T]) -> Result<bool> {
        let Some(reads) = &mut self.reads else {
            return Ok(true);
        };
        while self.asked.len() < records.len().min(AT_A_TIME) {
            self.asked.push_back(LookupState::Not);
        }
        for (asked, record) in self.asked.iter_mut().zip(records) {
            if !matches!(asked, LookupState::Not) {
                continue;
            }
            let read = reads.get(&(self.key)(record));
            let waits = |error: &Error| self.map.waits_for(error);
            match self.patience.judge_by(waits, read)? {
                Some(Read::Here(value)) => *asked = LookupState::Known(value),
                Some(Read::Later(number)) => *asked = LookupState::Under(number),
                Some(Read::NotNow) | None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Takes available results; returns true if some must be retried.
    fn take_results(&mut self) -> Result<bool> {
        let mut again = false;
        while let Some((number, answer)) = self.reads.as_mut().and_then(AnyReads::answer) {
            let is_it = |asked: &&mut LookupState<V>| matches!(asked, LookupState::Under(its) if *its == number);
            let Some(asked) = self.asked.iter_mut().find(is_it) else {
                continue;
            };
            let waits = |error: &Error| self.map.waits_for(error);
            *asked = match self.patience.judge_by(waits, answer)? {
                Some(value) => LookupState::Known(value),
                None => {
                    again = true;
                    LookupState::Not
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
    K: Key + StateValue,
    V: StateValue,
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
        let mut waits = self.take_results()?;
        // Failed lookups are not retried immediately.
        if !waits {
            waits = self.request_keys(rows.values())?;
        }
        let mut lane = outbox.lane::<U>(Ordinal::FIRST)?;
        let is_known = |asked: &&LookupState<V>| matches!(asked, LookupState::Known(_));
        let known = self.asked.iter().take_while(is_known).count();
        let count = known.min(lane.room());
        let answers = self.asked.drain(..count);
        for ((record, time), answer) in rows.drain_front(count).zip(answers) {
            if let LookupState::Known(value) = answer {
                lane.push((self.join)(record, value), time);
            }
        }
        if waits {
            outbox.wake_at(self.clock.now().saturating_add(RETRY_DELAY));
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
