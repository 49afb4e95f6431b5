//! A simulated instance: sources number the records of their partitions, and every later step
//! expects the next number.
//!
//! All vertices form a chain. A record goes to the instance that owns its partition, modulo the
//! parallelism. A step that receives another than the next record of a partition has found a loss
//! or a duplicate, wherever that occurred.

use std::collections::{BTreeMap, VecDeque};

use ardea_core::Epoch;

/// The number of partitions of the records.
pub const PARTITIONS: u32 = 12;

/// An instance, by the position of its vertex in the chain and its index.
pub type InstanceKey = (usize, u32);

/// The number of received records of each partition.
pub type Counts = BTreeMap<u32, u64>;

/// The chain of vertices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VertexChain {
    /// The parallelism of each vertex.
    pub parallelisms: Vec<u32>,
    /// The number of records in a partition, if it is finite.
    pub records: Option<u64>,
}

impl VertexChain {
    /// Returns true if `vertex` is the last one, which publishes.
    pub fn is_sink(&self, vertex: usize) -> bool {
        vertex + 1 == self.parallelisms.len()
    }

    fn owner(&self, vertex: usize, partition: u32) -> Option<InstanceKey> {
        let count = self.parallelisms.get(vertex)?;
        Some((vertex, partition % count))
    }

    /// Returns the partitions of an instance.
    pub fn partitions(&self, of: InstanceKey) -> impl Iterator<Item = u32> + '_ {
        (0..PARTITIONS).filter(move |partition| self.owner(of.0, *partition) == Some(of))
    }

    fn all_of(&self, vertex: usize) -> impl Iterator<Item = InstanceKey> + use<> {
        let count = self.parallelisms.get(vertex).copied().unwrap_or(0);
        (0..count).map(move |index| (vertex, index))
    }
}

/// An item of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// A record, by its partition and number.
    Record(u32, u64),
    /// The barrier at the end of an epoch.
    Marker(Epoch),
    /// The end of the stream.
    Done,
}

/// An effect of an instance on others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The instance sends an item.
    Send(InstanceKey, Item),
    /// The instance has taken the snapshot of an epoch, with this state.
    Snapshot(Epoch, Counts),
    /// The instance has completed.
    Ended,
}

#[derive(Debug, Default)]
struct Input {
    queue: VecDeque<Item>,
    marker: Option<Epoch>,
    is_done: bool,
}

/// An instance in one execution attempt.
#[derive(Debug)]
pub struct Instance {
    pub which: InstanceKey,
    pub counts: Counts,
    pub has_ended: bool,
    pub last_snapshot: Option<Epoch>,
    /// True if nothing was received since `last_snapshot`.
    is_at_snapshot: bool,
    inputs: BTreeMap<u32, Input>,
}

impl Instance {
    /// Creates an instance that starts with `counts`.
    pub fn new(which: InstanceKey, counts: Counts, row: &VertexChain) -> Self {
        let before = which.0.checked_sub(1);
        let above = before.map(|vertex| row.all_of(vertex));
        let inputs = above.into_iter().flatten();
        Instance {
            which,
            counts,
            has_ended: false,
            last_snapshot: None,
            is_at_snapshot: false,
            inputs: inputs.map(|(_, index)| (index, Input::default())).collect(),
        }
    }

    /// Returns the state in memory, if it is still the state at the end of `epoch`.
    pub fn memory_of(&self, epoch: Epoch) -> Option<&Counts> {
        let stands = self.is_at_snapshot && !self.has_ended && self.last_snapshot == Some(epoch);
        stands.then_some(&self.counts)
    }

    pub fn is_source(&self) -> bool {
        self.which.0 == 0
    }

    /// Reads a record of each partition of a source for which `wants` is true. The source completes
    /// when there are no more records.
    pub fn read(&mut self, row: &VertexChain, wants: impl Fn(u32) -> bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.has_ended {
            return effects;
        }
        let mut is_over = row.records.is_some();
        for partition in row.partitions(self.which) {
            let offset = self.counts.entry(partition).or_default();
            let has_more = row.records.is_none_or(|records| *offset < records);
            if has_more && wants(partition) {
                let to = row.owner(1, partition);
                effects.extend(to.map(|to| Effect::Send(to, Item::Record(partition, *offset))));
                *offset += 1;
            }
            is_over &= row.records.is_some_and(|records| *offset >= records);
        }
        if is_over {
            self.end(row, &mut effects);
        }
        effects
    }

    pub fn end_epoch(&mut self, epoch: Epoch, row: &VertexChain) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.has_ended {
            self.snapshot(epoch, row, &mut effects);
        }
        effects
    }

    /// Delivers an item.
    ///
    /// # Errors
    ///
    /// If `item` is a record, but not the next one of its partition.
    pub fn receive(
        &mut self,
        from: u32,
        item: Item,
        row: &VertexChain,
    ) -> Result<Vec<Effect>, String> {
        let mut effects = Vec::new();
        if let Some(input) = self.inputs.get_mut(&from) {
            input.queue.push_back(item);
        }
        loop {
            let mut open = self
                .inputs
                .values_mut()
                .filter(|input| input.marker.is_none());
            let Some(item) = open.find_map(|input| {
                let item = input.queue.pop_front()?;
                match item {
                    Item::Marker(epoch) => input.marker = Some(epoch),
                    Item::Done => input.is_done = true,
                    Item::Record(..) => {}
                }
                Some(item)
            }) else {
                return Ok(effects);
            };
            if let Item::Record(partition, offset) = item {
                self.count(partition, offset, row, &mut effects)?;
            }
            self.align(row, &mut effects);
        }
    }

    fn count(
        &mut self,
        partition: u32,
        offset: u64,
        row: &VertexChain,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let which = self.which;
        if row.owner(which.0, partition) != Some(which) {
            return Err(format!("{which:?} gets a record of partition {partition}"));
        }
        let count = self.counts.entry(partition).or_default();
        if *count != offset {
            return Err(format!(
                "{which:?} gets record {offset} of partition {partition} and expects {count}"
            ));
        }
        *count += 1;
        self.is_at_snapshot = false;
        let to = row.owner(which.0 + 1, partition);
        effects.extend(to.map(|to| Effect::Send(to, Item::Record(partition, offset))));
        Ok(())
    }

    /// Takes the snapshot when all inputs have reached the barrier, and completes when all inputs
    /// are done.
    fn align(&mut self, row: &VertexChain, effects: &mut Vec<Effect>) {
        let live = || self.inputs.values().filter(|input| !input.is_done);
        if live().next().is_none() {
            return self.end(row, effects);
        }
        if live().any(|input| input.marker.is_none()) {
            return;
        }
        let Some(epoch) = live().filter_map(|input| input.marker).min() else {
            return;
        };
        for input in self.inputs.values_mut() {
            if input.marker == Some(epoch) {
                input.marker = None;
            }
        }
        self.snapshot(epoch, row, effects);
    }

    fn snapshot(&mut self, epoch: Epoch, row: &VertexChain, effects: &mut Vec<Effect>) {
        if self.last_snapshot >= Some(epoch) {
            return;
        }
        self.last_snapshot = Some(epoch);
        self.is_at_snapshot = true;
        effects.push(Effect::Snapshot(epoch, self.counts.clone()));
        let below = row.all_of(self.which.0 + 1);
        effects.extend(below.map(|to| Effect::Send(to, Item::Marker(epoch))));
    }

    fn end(&mut self, row: &VertexChain, effects: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.has_ended, true) {
            effects.push(Effect::Ended);
            let below = row.all_of(self.which.0 + 1);
            effects.extend(below.map(|to| Effect::Send(to, Item::Done)));
        }
    }
}
