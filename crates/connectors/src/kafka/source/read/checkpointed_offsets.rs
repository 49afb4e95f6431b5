//! Checkpointed read positions of an instance's partitions.

use std::collections::{BTreeMap, VecDeque};

use ardea_core::instance_state::{PeerInstances, put, value, written_by};
use ardea_core::{
    Epoch, Error, ErrorCode, Instance, Progress, RestoredEntry, RestoredState, Result,
    SmallSnapshot, SnapshotRequest, SnapshotWriter,
};
use serde::{Deserialize, Serialize};

use crate::kafka::discovery::{Reached, RestoredTopics};
use crate::kafka::topics::{PartitionId, Selection};

/// State name of the topic metadata.
const TOPICS: &str = "topics";
/// State name of the partition offsets.
const OFFSETS: &str = "offsets";

/// Maximum number of epochs whose offsets are retained until they are committed or aborted.
const MOST_UNDECIDED: usize = 100;

/// Topic metadata stored by each instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    instances: u32,
    /// Number of partitions of each topic when the job first started, if known.
    at_first: Option<BTreeMap<String, i32>>,
}

/// Next offset of each partition at the end of an epoch.
pub(super) type Offsets = Vec<(PartitionId, i64)>;

/// Read positions to be stored in the checkpoint, and the restored read positions.
#[derive(Debug)]
pub(super) struct CheckpointedOffsets {
    instance: Instance,
    /// Topics to read; `None` before initialization.
    selection: Option<Selection>,
    resumed: RestoredTopics,
    /// True if the start offset of each initial partition is known.
    is_complete: bool,
    draft: SmallSnapshot,
    /// Offsets at the ends of the epochs that are neither committed nor aborted yet.
    undecided: VecDeque<(Epoch, Offsets)>,
    siblings: PeerInstances<Known>,
}

impl Default for CheckpointedOffsets {
    fn default() -> Self {
        CheckpointedOffsets {
            instance: Instance::ONLY,
            selection: None,
            resumed: RestoredTopics::default(),
            is_complete: false,
            draft: SmallSnapshot::default(),
            undecided: VecDeque::new(),
            siblings: PeerInstances::default(),
        }
    }
}

impl CheckpointedOffsets {
    pub fn begin(&mut self, instance: Instance, selection: Selection) {
        self.instance = instance;
        self.selection = Some(selection);
    }

    /// Returns the restored state.
    pub fn resumed(&self) -> RestoredTopics {
        self.resumed.clone()
    }

    /// Records the number of initial partitions of each topic, once known. `is_complete` is true if
    /// all of them have been found.
    pub fn note_partitions(&mut self, at_first: Option<BTreeMap<String, i32>>, is_complete: bool) {
        self.resumed.at_first = self.resumed.at_first.take().or(at_first);
        self.is_complete |= is_complete;
    }

    /// Removes a deleted partition from the stored positions.
    pub fn forget(&mut self, id: &PartitionId) {
        self.resumed.reached.remove(id);
    }

    /// Takes a snapshot of the positions `reached`. Partitions not found yet keep their restored
    /// position, if any. If the configured start `moves` with time (such as
    /// [`Start::Latest`](crate::kafka::Start::Latest)), all partitions must have been found.
    pub fn take_snapshot(
        &mut self,
        snapshot: SnapshotRequest,
        reached: impl Iterator<Item = (PartitionId, Reached)>,
        moves: bool,
    ) -> Result<()> {
        if moves && !self.is_complete && !snapshot.is_last {
            let what = "the start offsets of the topics' partitions are not known yet";
            return Err(Error::new(ErrorCode::Network, what).hint(
                "the brokers have not responded since the job started: check that they are running",
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
        self.undecided
            .push_back((snapshot.epoch, offsets.collect()));
        if self.undecided.len() > MOST_UNDECIDED {
            self.undecided.pop_front();
        }
        Ok(())
    }

    pub fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    /// Returns the offsets at the end of a committed epoch, or of the latest epoch before it.
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

    /// Finishes the restore.
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
    parts.ok_or_else(|| Error::new(ErrorCode::BadRecord, "an offset has an invalid key"))
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

    fn snapshot(
        kept: &mut CheckpointedOffsets,
        epoch: u64,
        partitions: &[(i32, i64)],
        into: &mut StateChunk,
    ) {
        let partitions = partitions.iter();
        let partitions = partitions.map(|(partition, next)| (id(*partition), reached(*next)));
        kept.take_snapshot(SnapshotRequest::full(Epoch(epoch)), partitions, false)
            .unwrap();
        let mut writer = SnapshotWriter::new(into, usize::MAX);
        assert!(kept.write_snapshot(&mut writer).unwrap().done);
    }

    fn instance(index: u32, parallelism: u32) -> CheckpointedOffsets {
        let mut kept = CheckpointedOffsets::default();
        kept.begin(
            Instance { index, parallelism },
            Topics::from("t").selection().unwrap(),
        );
        kept
    }

    fn restored(index: u32, parallelism: u32, chunk: &StateChunk) -> CheckpointedOffsets {
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
        snapshot(&mut one, 1, &[(0, 10), (2, 12)], &mut chunk);
        snapshot(&mut other, 1, &[(1, 11)], &mut chunk);
        let nexts = |kept: &CheckpointedOffsets| -> Vec<_> {
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
        // Partitions not found again yet keep their stored position.
        let mut again = restored(0, 1, &chunk);
        let mut chunk = StateChunk::default();
        snapshot(&mut again, 2, &[(1, 17)], &mut chunk);
        assert_eq!(nexts(&restored(0, 1, &chunk)), [(0, 10), (1, 17), (2, 12)]);
    }

    #[test]
    fn an_epoch_does_not_end_before_it_is_known_where_the_latest_records_were() {
        let mut kept = instance(0, 1);
        let take = |kept: &mut CheckpointedOffsets, moves| {
            kept.take_snapshot(SnapshotRequest::full(Epoch(1)), std::iter::empty(), moves)
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
            snapshot(&mut kept, epoch, &[(0, epoch as i64)], &mut chunk);
        }
        assert_eq!(kept.commit(Epoch(2)), Some(vec![(id(0), 2)]));
        assert_eq!(kept.commit(Epoch(2)), None);
        assert_eq!(kept.commit(Epoch(9)), Some(vec![(id(0), 3)]));
    }
}
