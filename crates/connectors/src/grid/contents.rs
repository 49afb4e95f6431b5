//! All that a map has, as a source.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ardea_codec::Kept;
use ardea_core::instance_state::{self as kept, Siblings};
use ardea_core::{
    Bounded, Cut, CutDraft, CutWriter, Epoch, Instance, InstanceContext, Isolation, JobSignals,
    Key, Ordinal, Outbox, PARTITION_COUNT, PartitionId, Processor, Progress, RestoredState, Result,
    Source, StateShape, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::grid::any_map::AnyMap;
use crate::grid::patience::Patience;

/// The name of the state.
const STATE: &str = "contents";

/// All entries of a map, in no particular order. What is there all the while is read once; what comes or goes meanwhile may be read or not.
///
/// Several instances share the map's partitions. A job that keeps its state goes on with what has not been read yet: what is remembered for that are the
/// partitions that have been read, and the keys that have been of the one at hand, a thousandth of the map.
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
pub fn contents<K: Key + Kept, V: Kept>(map: &impl AnyMap<K, V>) -> Source<(K, V), Bounded> {
    let (name, map) = (format!("map {}", map.name()), map.clone());
    let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
        Ok(Box::new(ContentsP::new(map.clone(), instance)))
    };
    Source::new(name, Arc::new(supply)).isolation(Isolation::Thread)
}

/// What an instance hands over.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Told {
    /// How many instances there were.
    instances: u32,
    /// Which partitions have been read, also by instances before.
    done: BTreeSet<u32>,
    /// Of those that have been begun, which keys have been read, as canonical bytes.
    begun: BTreeMap<u32, BTreeSet<Vec<u8>>>,
}

/// Reads the partitions of one instance.
struct ContentsP<K, V, M> {
    map: M,
    instance: Instance,
    signals: Arc<JobSignals>,
    keeps_state: bool,
    told: Told,
    /// The partition at hand, and what is left of it.
    at: Option<(u32, VecDeque<(K, V)>)>,
    patience: Patience,
    draft: CutDraft,
    restored: Siblings<Told>,
}

impl<K: Key + Kept, V: Kept, M: AnyMap<K, V>> ContentsP<K, V, M> {
    fn new(map: M, instance: Instance) -> Self {
        ContentsP {
            map,
            instance,
            signals: Arc::default(),
            keeps_state: false,
            told: Told::default(),
            at: None,
            patience: Patience::default(),
            draft: CutDraft::default(),
            restored: Siblings::default(),
        }
    }

    /// The next partition to be read.
    fn next(&self) -> Option<PartitionId> {
        let own = (0..PARTITION_COUNT).filter(|at| self.instance.owns(u64::from(*at)));
        let mut left = own.filter(|at| !self.told.done.contains(at));
        left.find_map(PartitionId::from_index)
    }

    /// Reads a partition, but what has been told of it; whether it could.
    fn read(&mut self, partition: PartitionId) -> Result<bool> {
        let told = self.told.begun.get(&partition.index());
        let mut entries = VecDeque::new();
        let outcome = self.map.read(partition, |key, value| {
            if told.is_none_or(|told| !told.contains(&bytes_of(&key))) {
                entries.push_back((key, value));
            }
        });
        let outcome = self.patience.judge(self.map.name(), outcome)?;
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

impl<K: Key + Kept, V: Kept, M: AnyMap<K, V>> Processor for ContentsP<K, V, M> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.signals = Arc::clone(&context.signals);
        self.keeps_state = context.guarantee.keeps_state();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        let mut lane = outbox.lane::<(K, V)>(Ordinal::FIRST)?;
        let Some((partition, entries)) = &mut self.at else {
            let Some(partition) = self.next() else {
                return Ok(Progress::DONE);
            };
            return Ok(match self.read(partition)? {
                true => Progress::MADE,
                false => Progress::NONE,
            });
        };
        let count = lane.room().min(entries.len());
        if count == 0 && !entries.is_empty() {
            return Ok(Progress::NONE);
        }
        for (key, value) in entries.drain(..count) {
            if self.keeps_state {
                let told = self.told.begun.entry(*partition).or_default();
                told.insert(bytes_of(&key));
            }
            lane.push((key, value), Timestamp::MIN);
        }
        if entries.is_empty() {
            self.told.begun.remove(partition);
            self.told.done.insert(*partition);
            self.at = None;
        }
        Ok(Progress::MADE)
    }

    fn states(&self) -> Vec<StateShape> {
        vec![StateShape::own(STATE)]
    }

    fn take_cut(&mut self, _: Cut) -> Result<()> {
        self.told.instances = self.instance.parallelism;
        let chunk = self.draft.begin();
        kept::put(chunk, STATE, (self.instance.index, &[]), &self.told)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.draft.write(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state != STATE {
                return Err(RestoredState::unknown(&entry));
            }
            self.restored.take(&entry)?;
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        for told in self
            .restored
            .all(|told| told.instances)?
            .unwrap_or_default()
        {
            self.told.done.extend(told.done);
            let begun = told.begun.into_iter();
            let own = begun.filter(|(at, _)| self.instance.owns(u64::from(*at)));
            self.told.begun.extend(own);
        }
        Ok(Progress::DONE)
    }

    fn is_at_end(&self) -> bool {
        self.at.is_none() && self.next().is_none()
    }
}
