//! How far an instance has read its partitions, and how that outlives it.

use std::collections::{BTreeMap, VecDeque};

use ardea_core::instance_state::{Siblings, put, value, written_by};
use ardea_core::{
    Cut, CutDraft, CutWriter, Epoch, Error, ErrorCode, Instance, Progress, RestoredEntry,
    RestoredState, Result,
};
use serde::{Deserialize, Serialize};

use crate::kafka::discovery::{Reached, Resumed};
use crate::kafka::topics::{PartitionId, Selection};

/// The name of the state that says what is known of the topics.
const TOPICS: &str = "topics";
/// The name of the state with an entry for each partition.
const OFFSETS: &str = "offsets";

/// Of how many epochs the offsets are remembered until it is known what came of them.
const MOST_UNDECIDED: usize = 100;

/// What each instance says of the topics.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    instances: u32,
    /// How many partitions each topic had at first, if that is known.
    at_first: Option<BTreeMap<String, i32>>,
}

/// The offset that comes next in each partition, at the end of an epoch.
pub(super) type Offsets = Vec<(PartitionId, i64)>;

/// What an instance hands over, and has got back.
#[derive(Debug)]
pub(super) struct KeptOffsets {
    instance: Instance,
    /// The topics that are read; none before that is known.
    selection: Option<Selection>,
    resumed: Resumed,
    /// It is known where each partition begins.
    is_complete: bool,
    draft: CutDraft,
    /// The offsets at the ends of epochs of which it is not known whether they are committed.
    undecided: VecDeque<(Epoch, Offsets)>,
    siblings: Siblings<Known>,
}

impl Default for KeptOffsets {
    fn default() -> Self {
        KeptOffsets {
            instance: Instance::ONLY,
            selection: None,
            resumed: Resumed::default(),
            is_complete: false,
            draft: CutDraft::default(),
            undecided: VecDeque::new(),
            siblings: Siblings::default(),
        }
    }
}

impl KeptOffsets {
    pub fn begin(&mut self, instance: Instance, selection: Selection) {
        self.instance = instance;
        self.selection = Some(selection);
    }

    /// What is known from earlier lives.
    pub fn resumed(&self) -> Resumed {
        self.resumed.clone()
    }

    /// So many partitions the topics had at first, if that is known by now, and whether all have been found.
    pub fn note_partitions(&mut self, at_first: Option<BTreeMap<String, i32>>, is_complete: bool) {
        self.resumed.at_first = self.resumed.at_first.take().or(at_first);
        self.is_complete |= is_complete;
    }

    /// A partition is gone: nothing of it is handed over any more.
    pub fn forget(&mut self, id: &PartitionId) {
        self.resumed.reached.remove(id);
    }

    /// A cut is taken, where the partitions are that have been found; others are where they were, or begin where they are said to: if
    /// that `moves` it has to be known by now.
    pub fn take_cut(
        &mut self,
        cut: Cut,
        reached: impl Iterator<Item = (PartitionId, Reached)>,
        moves: bool,
    ) -> Result<()> {
        if moves && !self.is_complete && !cut.is_last {
            let what = "it is not known yet where the topics' partitions are read from";
            return Err(Error::new(ErrorCode::Network, what).hint(
                "the brokers have not answered since the job began: check whether they are there",
            ));
        }
        self.resumed.reached.extend(reached);
        let index = self.instance.index;
        let known = Known {
            instances: self.instance.parallelism,
            at_first: self.resumed.at_first.clone(),
        };
        let chunk = self.draft.begin();
        put(chunk, TOPICS, (index, &[]), &known)?;
        for (id, reached) in &self.resumed.reached {
            put(chunk, OFFSETS, (index, &key_of_partition(id)), reached)?;
        }
        let all = self.resumed.reached.iter();
        let offsets = all.map(|(id, reached)| (id.clone(), reached.next));
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
    pub fn commit(&mut self, epoch: Epoch) -> Option<Offsets> {
        let mut latest = None;
        while let Some((_, offsets)) = self.undecided.pop_front_if(|(of, _)| *of <= epoch) {
            latest = Some(offsets);
        }
        latest
    }

    pub fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match entry.state {
                TOPICS => self.siblings.take(&entry)?,
                OFFSETS => {
                    let id = partition_of(&entry)?;
                    if self.is_ours(&id) {
                        self.resumed.reached.insert(id, value(&entry)?);
                    }
                }
                _ => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }

    fn is_ours(&self, id: &PartitionId) -> bool {
        let number = |selection: &Selection| selection.number(&id.topic, id.number);
        let number = self.selection.as_ref().map(number);
        number.is_some_and(|number| self.instance.owns(number))
    }

    /// All has come back.
    pub fn resume(&mut self) -> Result<()> {
        let Some(all) = self.siblings.all(|known| known.instances)? else {
            return Ok(());
        };
        let mut at_first: Option<BTreeMap<String, i32>> = None;
        for (topic, count) in all.into_iter().filter_map(|known| known.at_first).flatten() {
            let counts = at_first.get_or_insert_default();
            let least = counts.entry(topic).or_insert(count);
            *least = count.min(*least);
        }
        self.is_complete = at_first.is_some();
        self.resumed.at_first = at_first;
        Ok(())
    }
}

fn key_of_partition(id: &PartitionId) -> Vec<u8> {
    [&id.number.to_be_bytes()[..], id.topic.as_bytes()].concat()
}

fn partition_of(entry: &RestoredEntry<'_>) -> Result<PartitionId> {
    let (_, key) = written_by(entry)?;
    let parts = key.split_first_chunk().and_then(|(number, topic)| {
        let topic = std::str::from_utf8(topic).ok()?;
        Some(PartitionId::new(topic, i32::from_be_bytes(*number)))
    });
    parts.ok_or_else(|| Error::new(ErrorCode::BadRecord, "an offset is that of no partition"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::discovery::LogMark;
    use crate::kafka::topics::Topics;
    use ardea_core::{StateChunk, Timestamp};

    fn reached(next: i64) -> Reached {
        Reached {
            next,
            end: None,
            highest: Timestamp::MIN,
            log: LogMark {
                topic_id: Some("A".into()),
                leader_epoch: Some(3),
                last: None,
            },
        }
    }

    fn id(number: i32) -> PartitionId {
        PartitionId::new("t", number)
    }

    fn counts(count: i32) -> Option<BTreeMap<String, i32>> {
        Some([("t".to_string(), count)].into())
    }

    fn cut(kept: &mut KeptOffsets, epoch: u64, partitions: &[(i32, i64)], into: &mut StateChunk) {
        let partitions = partitions.iter();
        let partitions = partitions.map(|(partition, next)| (id(*partition), reached(*next)));
        kept.take_cut(Cut::full(Epoch(epoch)), partitions, false)
            .unwrap();
        let mut writer = CutWriter::new(into, usize::MAX);
        assert!(kept.write_cut(&mut writer).unwrap().done);
    }

    fn instance(index: u32, parallelism: u32) -> KeptOffsets {
        let mut kept = KeptOffsets::default();
        kept.begin(
            Instance { index, parallelism },
            Topics::from("t").selection().unwrap(),
        );
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
        one.note_partitions(counts(4), true);
        let mut chunk = StateChunk::default();
        cut(&mut one, 1, &[(0, 10), (2, 12)], &mut chunk);
        cut(&mut other, 1, &[(1, 11)], &mut chunk);
        let nexts = |kept: &KeptOffsets| -> Vec<_> {
            let reached = kept.resumed.reached.iter();
            reached
                .map(|(p, reached)| (p.number, reached.next))
                .collect()
        };
        for parallelism in [1, 2, 3, 5] {
            let mut all = Vec::new();
            for index in 0..parallelism {
                let kept = restored(index, parallelism, &chunk);
                assert_eq!(kept.resumed.at_first, counts(4));
                all.extend(nexts(&kept));
            }
            all.sort_unstable();
            assert_eq!(all, [(0, 10), (1, 11), (2, 12)]);
        }
        assert_eq!(restored(0, 1, &chunk).resumed.reached[&id(2)], reached(12));
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
        kept.note_partitions(counts(4), false);
        let error = take(&mut kept, true).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Network);
        kept.note_partitions(counts(4), true);
        take(&mut kept, true).unwrap();
    }

    #[test]
    fn the_latest_offsets_that_count_are_told() {
        let (mut kept, mut chunk) = (instance(0, 1), StateChunk::default());
        for epoch in 1..=3 {
            cut(&mut kept, epoch, &[(0, epoch as i64)], &mut chunk);
        }
        assert_eq!(kept.commit(Epoch(2)), Some(vec![(id(0), 2)]));
        assert_eq!(kept.commit(Epoch(2)), None);
        assert_eq!(kept.commit(Epoch(9)), Some(vec![(id(0), 3)]));
    }
}
