//! Source of all entries of a map.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ardea_codec::StateValue;
use ardea_core::instance_state::{self as kept, PeerInstances};
use ardea_core::{
    Bounded, Checkpointed, Epoch, Instance, InstanceContext, Key, PARTITION_COUNT, PartitionId,
    Progress, RestoredState, Result, SmallSnapshot, SnapshotRequest, SnapshotWriter, Source,
    StateShape,
};
use serde::{Deserialize, Serialize};

use crate::grid::any_map::AnyMap;
use crate::grid::retry::RetryUntilAvailable;
use crate::source_builder::{PollStatus, SourceBatch, SourceBuilder, SourceReader};

/// State name.
const STATE: &str = "contents";

/// Creates a bounded source of all entries of a map, in no particular order. Entries present during
/// the whole scan are read once; entries added or removed meanwhile may be missing.
///
/// Several instances share the map's partitions. A job with checkpoints resumes with the entries
/// not read yet. Its state contains the finished partitions and the keys read from the current
/// partition (about a thousandth of the map).
///
/// ```
/// use ardea_connectors::grid::{Grid, GridConfig, contents};
/// use ardea_pipeline::Pipeline;
///
/// let grid = Grid::start(GridConfig::new("harbour"))?;
/// let berths = grid.map::<String, u32>("berths")?;
/// berths.put(&"seagull".to_string(), &7)?;
/// let p = Pipeline::new("list");
/// let all = p.read_from(contents(&berths)).collect();
/// p.run()?;
/// assert_eq!(all.take(), [("seagull".to_string(), 7)]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub fn contents<K: Key + StateValue, V: StateValue>(
    map: &impl AnyMap<K, V>,
) -> Source<(K, V), Bounded> {
    let (name, map) = (format!("map {}", map.name()), map.clone());
    SourceBuilder::batch(name)
        .blocking()
        .reader(move |instance| ContentsReader::new(map.clone(), instance))
}

/// Snapshot of an instance.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ScanState {
    /// Parallelism at the time of the snapshot.
    instances: u32,
    /// Partitions fully read, also by earlier instances.
    done: BTreeSet<u32>,
    /// Encoded keys read from the unfinished partitions, by partition.
    begun: BTreeMap<u32, BTreeSet<Vec<u8>>>,
}

/// Reader of the partitions of one instance.
struct ContentsReader<K, V, M> {
    map: M,
    instance: Instance,
    keeps_state: bool,
    progress: ScanState,
    /// Current partition and its remaining entries.
    at: Option<(u32, VecDeque<(K, V)>)>,
    retry: RetryUntilAvailable,
    draft: SmallSnapshot,
    restored: PeerInstances<ScanState>,
}

impl<K: Key + StateValue, V: StateValue, M: AnyMap<K, V>> ContentsReader<K, V, M> {
    fn new(map: M, instance: Instance) -> Self {
        ContentsReader {
            retry: RetryUntilAvailable::new(map.name()),
            map,
            instance,
            keeps_state: false,
            progress: ScanState::default(),
            at: None,
            draft: SmallSnapshot::default(),
            restored: PeerInstances::default(),
        }
    }

    /// Returns the next partition to read.
    fn next(&self) -> Option<PartitionId> {
        let own = (0..PARTITION_COUNT).filter(|at| self.instance.owns(u64::from(*at)));
        let mut left = own.filter(|at| !self.progress.done.contains(at));
        left.find_map(PartitionId::from_index)
    }

    /// Reads the entries of a partition that have not been emitted; returns false if the read must
    /// be retried.
    fn read(&mut self, partition: PartitionId) -> Result<bool> {
        let told = self.progress.begun.get(&partition.index());
        let mut entries = VecDeque::new();
        let outcome = self.map.read(partition, |key, value| {
            if told.is_none_or(|told| !told.contains(&bytes_of(&key))) {
                entries.push_back((key, value));
            }
        });
        let outcome = self.retry.judge(outcome)?;
        if outcome.is_some() {
            self.at = Some((partition.index(), entries));
        }
        Ok(outcome.is_some())
    }
}

fn bytes_of<K: Key>(key: &K) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.write_to(&mut bytes);
    bytes
}

impl<K: Key + StateValue, V: StateValue, M: AnyMap<K, V>> SourceReader for ContentsReader<K, V, M> {
    type Record = (K, V);

    fn open(&mut self, context: &InstanceContext) -> Result<()> {
        self.keeps_state = context.guarantee.keeps_state();
        Ok(())
    }

    fn poll(&mut self, batch: &mut SourceBatch<'_, (K, V)>) -> Result<PollStatus> {
        let Some((partition, entries)) = &mut self.at else {
            let Some(partition) = self.next() else {
                return Ok(PollStatus::End);
            };
            return Ok(match self.read(partition)? {
                true => PollStatus::Ready,
                false => PollStatus::Idle,
            });
        };
        let count = batch.room().min(entries.len());
        for (key, value) in entries.drain(..count) {
            if self.keeps_state {
                let told = self.progress.begun.entry(*partition).or_default();
                told.insert(bytes_of(&key));
            }
            batch.push((key, value));
        }
        if entries.is_empty() {
            self.progress.begun.remove(partition);
            self.progress.done.insert(*partition);
            self.at = None;
        }
        Ok(PollStatus::Ready)
    }

    fn is_at_end(&self) -> bool {
        self.at.is_none() && self.next().is_none()
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<K: Key + StateValue, V: StateValue, M: AnyMap<K, V>> Checkpointed for ContentsReader<K, V, M> {
    fn states(&mut self) -> Vec<StateShape> {
        vec![StateShape::own(STATE)]
    }

    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.progress.instances = self.instance.parallelism;
        let chunk = self.draft.begin();
        kept::put(chunk, STATE, (self.instance.index, &[]), &self.progress)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.restored.restore(STATE, state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        for told in self
            .restored
            .all(|told| told.instances)?
            .unwrap_or_default()
        {
            self.progress.done.extend(told.done);
            let begun = told.begun.into_iter();
            let own = begun.filter(|(at, _)| self.instance.owns(u64::from(*at)));
            self.progress.begun.extend(own);
        }
        Ok(Progress::DONE)
    }
}
