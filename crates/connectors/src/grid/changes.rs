//! All that happens to a map, as a source.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ardea_codec::Kept;
use ardea_core::{
    Error, Instance, InstanceContext, Isolation, JobSignals, Key, Ordinal, Outbox, PARTITION_COUNT,
    PartitionId, Processor, Progress, Result, Source, Timestamp, Unbounded,
};
use ardea_grid::node::MapEvent;
use serde::{Deserialize, Serialize};

use crate::grid::any_map::{AnyListener, AnyMap};
use crate::grid::patience::Patience;

/// How long a call waits for something to happen.
const TURN: Duration = Duration::from_millis(100);

/// What has become of an entry of a map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change<K, V> {
    /// A key that had no value has this one.
    Added(K, V),
    /// A key that had a value has this one, which may be the one that it had.
    Updated(K, V),
    /// A key has no value any more.
    Removed(K),
}

/// What a map has, as [added](Change::Added), and then all that happens to it: whoever follows the records knows what the map has, a moment later.
///
/// * What happens to a key comes in the order in which it happens. What happens while the map is read at the beginning may come twice, what was older
///   first: the last that comes of a key is what it has.
/// * Where something was missed, because a member or host was lost or the job was too slow, that part of the map is read again, and what has changed comes as changes.
///   Changes in between that no reading has met are not told.
/// * For that the source remembers all keys of the map. It does not hand them over: a job that promises to keep its state is refused.
/// * There is one instance.
pub fn changes<K: Key + Kept, V: Kept>(map: &impl AnyMap<K, V>) -> Source<Change<K, V>, Unbounded> {
    let (name, map) = (format!("changes of map {}", map.name()), map.clone());
    let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
        Ok(Box::new(ChangesP::new(map.clone())))
    };
    Source::new(name, Arc::new(supply)).isolation(Isolation::Thread)
}

/// Listens to a map, and reads what it has not heard.
struct ChangesP<K, V, M: AnyMap<K, V>> {
    map: M,
    signals: Arc<JobSignals>,
    listener: Option<M::Listener>,
    /// What has to be read.
    unread: VecDeque<PartitionId>,
    /// The keys that those who follow know of, by partition.
    known: HashMap<u32, HashSet<K>>,
    /// What is to be told.
    ready: VecDeque<Change<K, V>>,
    patience: Patience,
}

impl<K: Key + Kept, V: Kept, M: AnyMap<K, V>> ChangesP<K, V, M> {
    fn new(map: M) -> Self {
        ChangesP {
            map,
            signals: Arc::default(),
            listener: None,
            unread: VecDeque::new(),
            known: HashMap::new(),
            ready: VecDeque::new(),
            patience: Patience::default(),
        }
    }

    /// Finds out what is to be told next; whether there was something to do.
    fn look(&mut self) -> Result<bool> {
        let Some(listener) = &self.listener else {
            let listener = self.judge(self.map.listen())?;
            // First heard, then read: so nothing is missed in between.
            if listener.is_some() {
                self.listener = listener;
                self.unread = (0..PARTITION_COUNT)
                    .filter_map(PartitionId::from_index)
                    .collect();
            }
            return Ok(self.listener.is_some());
        };
        if let Some(partition) = self.unread.front().copied() {
            return self.read(partition);
        }
        let heard = listener.next(TURN);
        let hears = |error: &Error| self.map.hears_after(error);
        let heard = self.patience.judge_by(hears, self.map.name(), heard)?;
        let event = heard.flatten();
        let is_any = event.is_some();
        match event {
            Some(MapEvent::Added(key, value) | MapEvent::Updated(key, value)) => {
                let partition = self.map.partition_of(&key)?.index();
                self.note(partition, key, value);
            }
            Some(MapEvent::Removed(key)) => {
                let partition = self.map.partition_of(&key)?.index();
                if self.known.entry(partition).or_default().remove(&key) {
                    self.ready.push_back(Change::Removed(key));
                }
            }
            Some(MapEvent::Missed(partitions)) => self.unread.extend(partitions),
            None => {}
        }
        Ok(is_any)
    }

    /// What came of using the map; none if it has to be tried again.
    fn judge<T>(&mut self, outcome: Result<T>) -> Result<Option<T>> {
        let waits = |error: &Error| self.map.waits_for(error);
        self.patience.judge_by(waits, self.map.name(), outcome)
    }

    fn note(&mut self, partition: u32, key: K, value: V) {
        let known = self.known.entry(partition);
        let change = match known.or_default().insert(key.clone()) {
            true => Change::Added(key, value),
            false => Change::Updated(key, value),
        };
        self.ready.push_back(change);
    }

    /// Reads a partition, and tells in what it differs from what is known; whether it could be read.
    fn read(&mut self, partition: PartitionId) -> Result<bool> {
        let mut entries = Vec::new();
        let outcome = self
            .map
            .read(partition, |key, value| entries.push((key, value)));
        if self.judge(outcome)?.is_none() {
            return Ok(false);
        }
        self.unread.pop_front();
        let mut gone = self
            .known
            .get(&partition.index())
            .cloned()
            .unwrap_or_default();
        for (key, value) in entries {
            gone.remove(&key);
            self.note(partition.index(), key, value);
        }
        for key in gone {
            self.known
                .entry(partition.index())
                .or_default()
                .remove(&key);
            self.ready.push_back(Change::Removed(key));
        }
        Ok(true)
    }
}

impl<K: Key + Kept, V: Kept, M: AnyMap<K, V>> Processor for ChangesP<K, V, M> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.signals = Arc::clone(&context.signals);
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        let mut lane = outbox.lane::<Change<K, V>>(Ordinal::FIRST)?;
        let count = lane.room().min(self.ready.len());
        for change in self.ready.drain(..count) {
            lane.push(change, Timestamp::MIN);
        }
        if count > 0 || !self.ready.is_empty() {
            return Ok(Progress {
                made: count > 0,
                done: false,
            });
        }
        Ok(match self.look()? {
            true => Progress::MADE,
            false => Progress::NONE,
        })
    }

    fn forgets(&self) -> Option<&'static str> {
        Some("of which keys of the map it has told")
    }

    fn close(&mut self) {
        self.listener = None;
    }
}
