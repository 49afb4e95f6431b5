//! Source of all changes of a map.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use ardea_codec::StateValue;
use ardea_core::{Error, Key, PARTITION_COUNT, PartitionId, Result, Source, Unbounded};
use ardea_grid::node::MapEvent;
use serde::{Deserialize, Serialize};

use crate::grid::any_map::{AnyListener, AnyMap};
use crate::grid::retry::RetryUntilAvailable;
use crate::source_builder::{PollStatus, SourceBatch, SourceBuilder, SourceReader};

/// Longest time that one call waits for an event.
const EVENT_TIMEOUT: Duration = Duration::from_millis(100);

/// Change of a map entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change<K, V> {
    /// A key was added with this value.
    Added(K, V),
    /// The value of a key was set again, possibly to the same value.
    Updated(K, V),
    /// A key was removed.
    Removed(K),
}

/// Creates a source of a map's entries, as [added](Change::Added), followed by all changes.
/// Applying the records in order reproduces the map, with a short delay.
///
/// * Changes of a key arrive in order. During the initial read, a change may arrive twice, also
///   after a newer one; the last record of a key is its current state.
/// * If events were missed, because a member or host was lost or the job was too slow, the
///   partition is read again and the differences are emitted as changes. Changes in between are
///   then not emitted.
/// * To find the differences, the source stores all keys of the map. The keys are not part of a
///   checkpoint: a job with checkpoints refuses this source.
/// * There is one instance.
pub fn changes<K: Key + StateValue, V: StateValue>(
    map: &impl AnyMap<K, V>,
) -> Source<Change<K, V>, Unbounded> {
    let (name, map) = (format!("changes of map {}", map.name()), map.clone());
    SourceBuilder::stream(name)
        .blocking()
        .reader(move |_| ChangeReader {
            retry: RetryUntilAvailable::new(map.name()),
            map: map.clone(),
            listener: None,
            unread: PartitionQueue::default(),
            known: HashMap::new(),
        })
}

/// Partitions to read, each once: the read of a partition covers all that was missed before it.
#[derive(Default)]
struct PartitionQueue {
    order: VecDeque<PartitionId>,
    members: HashSet<PartitionId>,
}

impl PartitionQueue {
    fn add(&mut self, partitions: impl IntoIterator<Item = PartitionId>) {
        for partition in partitions {
            if self.members.insert(partition) {
                self.order.push_back(partition);
            }
        }
    }

    fn first(&self) -> Option<PartitionId> {
        self.order.front().copied()
    }

    fn remove_first(&mut self) {
        if let Some(partition) = self.order.pop_front() {
            self.members.remove(&partition);
        }
    }
}

/// Reader that listens to a map, and reads partitions whose events were missed.
struct ChangeReader<K, V, M: AnyMap<K, V>> {
    map: M,
    listener: Option<M::Listener>,
    unread: PartitionQueue,
    /// Keys emitted so far, by partition.
    known: HashMap<u32, HashSet<K>>,
    retry: RetryUntilAvailable,
}

impl<K: Key + StateValue, V: StateValue, M: AnyMap<K, V>> ChangeReader<K, V, M> {
    /// Emits the next changes; returns true if it received an event or read a partition.
    fn emit(&mut self, batch: &mut SourceBatch<'_, Change<K, V>>) -> Result<bool> {
        let Some(listener) = &self.listener else {
            let listener = self.judge(self.map.listen())?;
            // Subscribe before reading, so that no event is missed in between.
            if listener.is_some() {
                self.listener = listener;
                let all = (0..PARTITION_COUNT).filter_map(PartitionId::from_index);
                self.unread.add(all);
            }
            return Ok(self.listener.is_some());
        };
        if let Some(partition) = self.unread.first() {
            return self.read(partition, batch);
        }
        let heard = listener.next(EVENT_TIMEOUT);
        let hears = |error: &Error| self.map.survives(error);
        let heard = self.retry.judge_by(hears, heard)?;
        let event = heard.flatten();
        let is_any = event.is_some();
        match event {
            Some(MapEvent::Added(key, value) | MapEvent::Updated(key, value)) => {
                let partition = self.map.partition_of(&key)?.index();
                batch.push(self.note(partition, key, value));
            }
            Some(MapEvent::Removed(key)) => {
                let partition = self.map.partition_of(&key)?.index();
                if self.known.entry(partition).or_default().remove(&key) {
                    batch.push(Change::Removed(key));
                }
            }
            Some(MapEvent::Missed(partitions)) => self.unread.add(partitions),
            None => {}
        }
        Ok(is_any)
    }

    /// Returns the value of a map operation; `None` if it must be retried.
    fn judge<T>(&mut self, outcome: Result<T>) -> Result<Option<T>> {
        let waits = |error: &Error| self.map.waits_for(error);
        self.retry.judge_by(waits, outcome)
    }

    fn note(&mut self, partition: u32, key: K, value: V) -> Change<K, V> {
        let known = self.known.entry(partition);
        match known.or_default().insert(key.clone()) {
            true => Change::Added(key, value),
            false => Change::Updated(key, value),
        }
    }

    /// Reads a partition and emits its differences from the known keys; returns false if the read
    /// must be retried.
    fn read(
        &mut self,
        partition: PartitionId,
        batch: &mut SourceBatch<'_, Change<K, V>>,
    ) -> Result<bool> {
        let mut entries = Vec::new();
        let outcome = self
            .map
            .read(partition, |key, value| entries.push((key, value)));
        if self.judge(outcome)?.is_none() {
            return Ok(false);
        }
        self.unread.remove_first();
        let mut gone = self
            .known
            .get(&partition.index())
            .cloned()
            .unwrap_or_default();
        for (key, value) in entries {
            gone.remove(&key);
            batch.push(self.note(partition.index(), key, value));
        }
        for key in gone {
            self.known
                .entry(partition.index())
                .or_default()
                .remove(&key);
            batch.push(Change::Removed(key));
        }
        Ok(true)
    }
}

impl<K: Key + StateValue, V: StateValue, M: AnyMap<K, V>> SourceReader for ChangeReader<K, V, M> {
    type Record = Change<K, V>;

    fn poll(&mut self, batch: &mut SourceBatch<'_, Change<K, V>>) -> Result<PollStatus> {
        Ok(match self.emit(batch)? {
            true => PollStatus::Ready,
            false => PollStatus::Idle,
        })
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        Some("which keys of the map it has emitted")
    }

    fn close(&mut self) {
        self.listener = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_is_missed_again_before_its_read_is_read_once() {
        let partitions =
            |numbers: std::ops::Range<u32>| numbers.filter_map(PartitionId::from_index);
        let mut unread = PartitionQueue::default();
        unread.add(partitions(0..5));
        unread.remove_first();
        unread.add(partitions(0..3));
        let mut order = Vec::new();
        while let Some(partition) = unread.first() {
            order.push(partition.index());
            unread.remove_first();
        }
        assert_eq!(order, [1, 2, 3, 4, 0]);
    }
}
