//! Keys whose states are not back yet, of an operator that has begun before they were.

use std::borrow::Cow;
use std::collections::VecDeque;

use ardea_core::{Key, PARTITION_COUNT, PartitionId, RecordGuard};

use crate::keyed::KeyedStates;

/// How many records may be put aside however few keys are to come back; those that come then wait where they are.
pub(super) const LEAST_ASIDE: usize = 1 << 17;

/// One record more may be put aside for so many keys that are to come back. The time until all are back grows with the keys, and results would be missed again as
/// soon as no more may be put aside; what is aside takes little memory beside that many keys.
const KEYS_PER_ASIDE: usize = 16;

/// Partitions of which not all keys have come back.
#[derive(Debug, Default)]
pub(crate) struct Away {
    back: Partitions,
    asked: Partitions,
    /// Those of which records have been put aside…
    owed: Partitions,
    /// … and that have come back since.
    due: VecDeque<PartitionId>,
    /// Those that have been asked for, and that nobody has been told of.
    wanted: Vec<PartitionId>,
    most_aside: usize,
}

/// A set of partitions.
#[derive(Debug, Default)]
struct Partitions([u64; PARTITION_COUNT as usize / 64]);

impl Partitions {
    fn has(&self, partition: PartitionId) -> bool {
        let (word, bit) = place(partition);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Whether it was not there.
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

impl Away {
    /// How many of these records, from the first on, are of partitions that are back. If the next one is not, and has not been asked
    /// for, that is done for all that come.
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

impl<K: Key, S> KeyedStates<K, S> {
    /// Whether a record of this partition has to be put aside, which it is then: the partition is not back, or others of it are aside. If
    /// it has not been asked for, that is done.
    pub(crate) fn puts_aside(&mut self, partition: PartitionId) -> bool {
        let Some(away) = &mut self.away else {
            return false;
        };
        if away.back.has(partition) {
            return away.owed.has(partition);
        }
        if away.asked.insert(partition) {
            away.wanted.push(partition);
        }
        away.owed.insert(partition);
        true
    }

    /// How many records may be aside at a time.
    pub(crate) fn most_aside(&self) -> usize {
        let away = self.away.as_ref();
        away.map_or(LEAST_ASIDE, |away| away.most_aside)
    }

    /// The partition that is back, of which records are aside, and that comes next.
    pub(crate) fn behind(&self) -> Option<PartitionId> {
        self.away.as_ref()?.due.front().copied()
    }

    /// None of [that one](Self::behind) is aside any more.
    pub(crate) fn catch_up(&mut self) {
        if let Some(away) = &mut self.away
            && let Some(partition) = away.due.pop_front()
        {
            away.owed.remove(partition);
        }
    }

    /// Begins before its keys are back, about so many, if it can: with all of them in memory. Nothing has come back yet.
    pub(crate) fn begin_early(&mut self, entries: u64, is_kept: bool) -> bool {
        if self.has_disk() || !is_kept {
            return false;
        }
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        self.reserve(entries);
        self.away = Some(Box::new(Away {
            most_aside: LEAST_ASIDE.max(entries / KEYS_PER_ASIDE),
            ..Away::default()
        }));
        true
    }

    /// Whether some keys have not come back yet.
    #[inline]
    pub(crate) fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// How many of the records that have these keys, from the first on, may be dealt with: all but those behind one whose key may not be back
    /// yet.
    pub(crate) fn ready<'k>(&mut self, keys: impl ExactSizeIterator<Item = Cow<'k, K>>) -> usize {
        match &mut self.away {
            None => keys.len(),
            Some(away) => away.ready(keys),
        }
    }

    /// All keys of this partition are back.
    pub(crate) fn come_back(&mut self, partition: PartitionId) {
        if let Some(away) = &mut self.away {
            away.back.insert(partition);
            if away.owed.has(partition) {
                away.due.push_back(partition);
            }
        }
    }

    /// All keys are back.
    pub(crate) fn are_back(&mut self) {
        self.away = None;
    }

    /// The partitions that somebody has to bring next.
    pub(crate) fn take_wanted(&mut self, wanted: &mut Vec<PartitionId>) {
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
            let mut states: KeyedStates<u64, ()> = KeyedStates::default();
            assert!(states.begin_early(entries, true));
            states.most_aside()
        };
        assert_eq!(most(0), LEAST_ASIDE);
        assert_eq!(most(1 << 22), 1 << 18);
    }

    #[test]
    fn records_wait_behind_the_first_whose_partition_is_not_back_and_all_are_asked_for_once() {
        let mut states: KeyedStates<u64, ()> = KeyedStates::default();
        assert!(!states.begin_early(10, false));
        assert!(states.begin_early(10, true));
        let partition = |index| PartitionId::from_index(index).unwrap();
        let keys = keys(&[5, 900, 5, 7, 1023]);
        let ready = |states: &mut KeyedStates<u64, ()>| {
            let mut wanted = Vec::new();
            let ready = states.ready(keys.iter().map(Cow::Borrowed));
            states.take_wanted(&mut wanted);
            let wanted: Vec<u32> = wanted.into_iter().map(PartitionId::index).collect();
            (ready, wanted)
        };
        assert_eq!(ready(&mut states), (0, vec![5, 900, 7, 1023]));
        states.come_back(partition(7));
        assert_eq!(ready(&mut states), (0, vec![]));
        states.come_back(partition(5));
        assert_eq!(ready(&mut states), (1, vec![]));
        states.come_back(partition(900));
        assert_eq!(ready(&mut states), (4, vec![]));
        states.are_back();
        assert_eq!(ready(&mut states), (5, vec![]));
    }
}
