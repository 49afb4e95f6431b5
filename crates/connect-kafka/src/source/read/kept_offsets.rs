//! How far an instance has read its partitions, and how that outlives it.

use std::collections::VecDeque;

use ardea_core::instance_state::{Siblings, put, value, written_by};
use ardea_core::{
    Cut, CutDraft, CutWriter, Epoch, Error, ErrorCode, Instance, Progress, RestoredEntry,
    RestoredState, Result,
};
use serde::{Deserialize, Serialize};

use crate::scout::{Reached, Resumed};

/// The name of the state that says what is known of the topic.
const TOPIC: &str = "topic";
/// The name of the state with an entry for each partition.
const OFFSETS: &str = "offsets";

/// Of how many epochs the offsets are remembered until it is known what came of them.
const MOST_UNDECIDED: usize = 100;

/// What each instance says of the topic.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Topic {
    instances: u32,
    /// How many partitions there were at first, if that is known.
    at_first: Option<i32>,
}

/// What an instance hands over, and has got back.
#[derive(Debug)]
pub(super) struct KeptOffsets {
    instance: Instance,
    resumed: Resumed,
    /// It is known where each partition begins.
    is_complete: bool,
    draft: CutDraft,
    /// The offsets at the ends of epochs of which it is not known whether they are committed.
    undecided: VecDeque<(Epoch, Vec<(i32, i64)>)>,
    siblings: Siblings<Topic>,
}

impl Default for KeptOffsets {
    fn default() -> Self {
        KeptOffsets {
            instance: Instance::ONLY,
            resumed: Resumed::default(),
            is_complete: false,
            draft: CutDraft::default(),
            undecided: VecDeque::new(),
            siblings: Siblings::default(),
        }
    }
}

impl KeptOffsets {
    pub fn begin(&mut self, instance: Instance) {
        self.instance = instance;
    }

    /// What is known from earlier lives.
    pub fn resumed(&self) -> Resumed {
        self.resumed.clone()
    }

    /// So many partitions the topic had at first, if that is known by now, and whether all have been found.
    pub fn note_partitions(&mut self, at_first: Option<i32>, is_complete: bool) {
        self.resumed.at_first = self.resumed.at_first.or(at_first);
        self.is_complete |= is_complete;
    }

    /// A cut is taken, where the partitions are that have been found; others are where they were, or begin where they are said to: if
    /// that `moves` it has to be known by now.
    pub fn take_cut(
        &mut self,
        cut: Cut,
        reached: impl Iterator<Item = (i32, Reached)>,
        moves: bool,
    ) -> Result<()> {
        if moves && !self.is_complete && !cut.is_last {
            let what = "it is not known yet where the topic's partitions are read from";
            return Err(Error::new(ErrorCode::Network, what).hint(
                "the brokers have not answered since the job began: check whether they are there",
            ));
        }
        self.resumed.reached.extend(reached);
        let index = self.instance.index;
        let topic = Topic {
            instances: self.instance.parallelism,
            at_first: self.resumed.at_first,
        };
        let chunk = self.draft.begin();
        put(chunk, TOPIC, (index, &[]), &topic)?;
        for (partition, reached) in &self.resumed.reached {
            put(chunk, OFFSETS, (index, &partition.to_be_bytes()), reached)?;
        }
        let all = self.resumed.reached.iter();
        let offsets = all.map(|(partition, reached)| (*partition, reached.next));
        self.undecided.push_back((cut.epoch, offsets.collect()));
        if self.undecided.len() > MOST_UNDECIDED {
            self.undecided.pop_front();
        }
        Ok(())
    }

    pub fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    /// The offsets of a committed epoch, or of the latest before it.
    pub fn commit(&mut self, epoch: Epoch) -> Option<Vec<(i32, i64)>> {
        let mut latest = None;
        while let Some((_, offsets)) = self.undecided.pop_front_if(|(of, _)| *of <= epoch) {
            latest = Some(offsets);
        }
        latest
    }

    pub fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match entry.state {
                TOPIC => self.siblings.take(&entry)?,
                OFFSETS => {
                    let partition = partition_of(&entry)?;
                    // Whose it is says its number, as ever.
                    if u64::try_from(partition).is_ok_and(|number| self.instance.owns(number)) {
                        self.resumed.reached.insert(partition, value(&entry)?);
                    }
                }
                _ => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }

    /// All has come back.
    pub fn resume(&mut self) -> Result<()> {
        if let Some(all) = self.siblings.all(|topic| topic.instances)? {
            self.resumed.at_first = all.iter().filter_map(|topic| topic.at_first).min();
            self.is_complete = self.resumed.at_first.is_some();
        }
        Ok(())
    }
}

fn partition_of(entry: &RestoredEntry<'_>) -> Result<i32> {
    let (_, partition) = written_by(entry)?;
    let partition = partition.try_into().map(i32::from_be_bytes);
    partition.map_err(|_| Error::new(ErrorCode::BadRecord, "an offset is that of no partition"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{StateChunk, Timestamp};

    fn reached(next: i64) -> Reached {
        Reached {
            next,
            end: None,
            highest: Timestamp::MIN,
        }
    }

    fn cut(kept: &mut KeptOffsets, epoch: u64, partitions: &[(i32, i64)], into: &mut StateChunk) {
        let partitions = partitions.iter();
        let partitions = partitions.map(|(partition, next)| (*partition, reached(*next)));
        kept.take_cut(Cut::full(Epoch(epoch)), partitions, false)
            .unwrap();
        let mut writer = CutWriter::new(into, usize::MAX);
        assert!(kept.write_cut(&mut writer).unwrap().done);
    }

    fn instance(index: u32, parallelism: u32) -> KeptOffsets {
        let mut kept = KeptOffsets::default();
        kept.begin(Instance { index, parallelism });
        kept
    }

    fn restored(index: u32, parallelism: u32, chunk: &StateChunk) -> KeptOffsets {
        let (mut kept, mut position) = (instance(index, parallelism), 0);
        let of = kept.instance;
        let mut state = RestoredState::new(chunk, &mut position, of, usize::MAX);
        kept.restore(&mut state).unwrap();
        kept.resume().unwrap();
        kept
    }

    #[test]
    fn partitions_go_to_whom_their_number_says() {
        let (mut one, mut other) = (instance(0, 2), instance(1, 2));
        one.note_partitions(Some(4), true);
        let mut chunk = StateChunk::default();
        cut(&mut one, 1, &[(0, 10), (2, 12)], &mut chunk);
        cut(&mut other, 1, &[(1, 11)], &mut chunk);
        let nexts = |kept: &KeptOffsets| -> Vec<_> {
            let reached = kept.resumed.reached.iter();
            reached.map(|(p, reached)| (*p, reached.next)).collect()
        };
        for parallelism in [1, 2, 3, 5] {
            let mut all = Vec::new();
            for index in 0..parallelism {
                let kept = restored(index, parallelism, &chunk);
                assert_eq!(kept.resumed.at_first, Some(4));
                all.extend(nexts(&kept));
            }
            all.sort_unstable();
            assert_eq!(all, [(0, 10), (1, 11), (2, 12)]);
        }
        // What has not been found again yet is handed over as it was.
        let mut again = restored(0, 1, &chunk);
        let mut chunk = StateChunk::default();
        cut(&mut again, 2, &[(1, 17)], &mut chunk);
        assert_eq!(nexts(&restored(0, 1, &chunk)), [(0, 10), (1, 17), (2, 12)]);
    }

    #[test]
    fn an_epoch_does_not_end_before_it_is_known_where_the_latest_records_were() {
        let mut kept = instance(0, 1);
        let take = |kept: &mut KeptOffsets, moves| {
            kept.take_cut(Cut::full(Epoch(1)), std::iter::empty(), moves)
        };
        take(&mut kept, false).unwrap();
        kept.note_partitions(Some(4), false);
        let error = take(&mut kept, true).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Network);
        kept.note_partitions(Some(4), true);
        take(&mut kept, true).unwrap();
    }

    #[test]
    fn the_latest_offsets_that_count_are_told() {
        let (mut kept, mut chunk) = (instance(0, 1), StateChunk::default());
        for epoch in 1..=3 {
            cut(&mut kept, epoch, &[(0, epoch as i64)], &mut chunk);
        }
        assert_eq!(kept.commit(Epoch(2)), Some(vec![(0, 2)]));
        assert_eq!(kept.commit(Epoch(2)), None);
        assert_eq!(kept.commit(Epoch(9)), Some(vec![(0, 3)]));
    }
}
