//! Partitions that are not restored yet, for an operator that starts before its state is complete.

use std::borrow::Cow;
use std::collections::VecDeque;

use ardea_core::{Key, PARTITION_COUNT, PartitionId, RecordGuard};

use crate::StateTable;

/// The minimum limit of buffered records. Further records remain in the inbox.
pub const MIN_BUFFERED: usize = 1 << 17;

/// The number of keys to restore for which the limit of buffered records grows by one. The restore
/// time grows with the number of keys, and results are delayed once the limit is reached. A
/// buffered record takes little memory compared to this number of keys.
const KEYS_PER_ASIDE: usize = 16;

/// The partitions whose restore is incomplete.
#[derive(Debug, Default)]
pub struct RestoringPartitions {
    back: Partitions,
    asked: Partitions,
    /// The partitions with buffered records.
    buffered: Partitions,
    /// The restored partitions among `buffered`, whose records are to be processed.
    due: VecDeque<PartitionId>,
    /// The requested partitions that have not been reported yet.
    wanted: Vec<PartitionId>,
    max_buffered: usize,
}

/// A set of partitions.
#[derive(Debug, Default)]
struct Partitions([u64; PARTITION_COUNT as usize / 64]);

impl Partitions {
    fn has(&self, partition: PartitionId) -> bool {
        let (word, bit) = place(partition);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Adds a partition. Returns true if the partition was not in the set.
    fn insert(&mut self, partition: PartitionId) -> bool {
        let (word, bit) = place(partition);
        let is_new = !self.has(partition);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
        is_new
    }

    fn remove(&mut self, partition: PartitionId) {
        let (word, bit) = place(partition);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
    }
}

fn place(partition: PartitionId) -> (usize, u64) {
    let index = partition.index();
    ((index / 64) as usize, 1 << (index % 64))
}

impl RestoringPartitions {
    /// Returns the number of leading records whose partitions are restored. If the partition of the
    /// record after them was not requested, requests those of all remaining records.
    fn ready<'k, K: Key>(&mut self, keys: impl Iterator<Item = Cow<'k, K>>) -> usize {
        let mut guard = RecordGuard::new();
        let (mut ready, mut waits) = (0, false);
        for key in keys {
            let partition = PartitionId::of(&*key);
            guard.advance();
            if self.back.has(partition) {
                ready += usize::from(!waits);
                continue;
            }
            if self.asked.insert(partition) {
                self.wanted.push(partition);
            } else if !waits {
                break;
            }
            waits = true;
        }
        ready
    }
}

impl<K: Key, S> StateTable<K, S> {
    /// Returns true if a record of this partition must be buffered: the partition is not restored,
    /// or has buffered records. Requests the partition if necessary.
    pub fn must_buffer(&mut self, partition: PartitionId) -> bool {
        let Some(away) = &mut self.away else {
            return false;
        };
        if away.back.has(partition) {
            return away.buffered.has(partition);
        }
        if away.asked.insert(partition) {
            away.wanted.push(partition);
        }
        away.buffered.insert(partition);
        true
    }

    /// Returns the maximum number of buffered records.
    pub fn max_buffered(&self) -> usize {
        let away = self.away.as_ref();
        away.map_or(MIN_BUFFERED, |away| away.max_buffered)
    }

    /// Returns the next restored partition with buffered records.
    pub fn next_buffered_partition(&self) -> Option<PartitionId> {
        self.away.as_ref()?.due.front().copied()
    }

    /// Marks the buffered records of the [next partition](Self::next_buffered_partition) as
    /// processed.
    pub fn finish_buffered_partition(&mut self) {
        if let Some(away) = &mut self.away
            && let Some(partition) = away.due.pop_front()
        {
            away.buffered.remove(partition);
        }
    }

    /// Enables an early start, before about `entries` keys are restored. Returns false if state may
    /// be spilled or is not checkpointed. Must be called before anything is restored.
    pub fn begin_early(&mut self, entries: u64, is_kept: bool) -> bool {
        if self.has_disk() || !is_kept {
            return false;
        }
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        self.reserve(entries);
        self.away = Some(Box::new(RestoringPartitions {
            max_buffered: MIN_BUFFERED.max(entries / KEYS_PER_ASIDE),
            ..RestoringPartitions::default()
        }));
        true
    }

    /// Returns true if some keys are not restored yet.
    #[inline]
    pub fn is_restoring(&self) -> bool {
        self.away.is_some()
    }

    /// Returns the number of leading records that may be processed: those before the first record
    /// with a key that may not be restored yet.
    pub fn ready<'k>(&mut self, keys: impl ExactSizeIterator<Item = Cow<'k, K>>) -> usize {
        match &mut self.away {
            None => keys.len(),
            Some(away) => away.ready(keys),
        }
    }

    /// Marks a partition as restored.
    pub fn partition_restored(&mut self, partition: PartitionId) {
        if let Some(away) = &mut self.away {
            away.back.insert(partition);
            if away.buffered.has(partition) {
                away.due.push_back(partition);
            }
        }
    }

    /// Marks all partitions as restored.
    pub fn all_restored(&mut self) {
        self.away = None;
    }

    /// Appends the partitions that should be restored next.
    pub fn take_wanted(&mut self, wanted: &mut Vec<PartitionId>) {
        if let Some(away) = &mut self.away {
            wanted.append(&mut away.wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(partitions: &[u32]) -> Vec<u64> {
        let find = |index: &u32| (0u64..).find(|key| PartitionId::of(key).index() == *index);
        partitions.iter().filter_map(find).collect()
    }

    #[test]
    fn more_records_may_be_aside_where_more_keys_are_to_come_back() {
        let most = |entries| {
            let mut states: StateTable<u64, ()> = StateTable::default();
            assert!(states.begin_early(entries, true));
            states.max_buffered()
        };
        assert_eq!(most(0), MIN_BUFFERED);
        assert_eq!(most(1 << 22), 1 << 18);
    }

    #[test]
    fn records_wait_behind_the_first_whose_partition_is_not_back_and_all_are_asked_for_once() {
        let mut states: StateTable<u64, ()> = StateTable::default();
        assert!(!states.begin_early(10, false));
        assert!(states.begin_early(10, true));
        let partition = |index| PartitionId::from_index(index).unwrap();
        let keys = keys(&[5, 900, 5, 7, 1023]);
        let ready = |states: &mut StateTable<u64, ()>| {
            let mut wanted = Vec::new();
            let ready = states.ready(keys.iter().map(Cow::Borrowed));
            states.take_wanted(&mut wanted);
            let wanted: Vec<u32> = wanted.into_iter().map(PartitionId::index).collect();
            (ready, wanted)
        };
        assert_eq!(ready(&mut states), (0, vec![5, 900, 7, 1023]));
        states.partition_restored(partition(7));
        assert_eq!(ready(&mut states), (0, vec![]));
        states.partition_restored(partition(5));
        assert_eq!(ready(&mut states), (1, vec![]));
        states.partition_restored(partition(900));
        assert_eq!(ready(&mut states), (4, vec![]));
        states.all_restored();
        assert_eq!(ready(&mut states), (5, vec![]));
    }
}
