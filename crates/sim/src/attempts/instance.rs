//! A simulated instance: sources number the records of their partitions, and every later step
//! expects the next number.
//!
//! All vertices form a chain. A record goes to the instance that owns its partition, modulo the
//! parallelism. A step that receives another than the next record of a partition has found a loss
//! or a duplicate, wherever that occurred.

use ardea_core::Epoch;

use crate::dataflow::{InputAlignment, InputGate, Item};
use crate::storage::Counts;

/// The number of partitions of the records.
pub const PARTITIONS: u32 = 12;

/// An instance, by the position of its vertex in the chain and its index.
pub type InstanceKey = (usize, u32);

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

/// A record, by its partition and number.
pub type NumberedRecord = (u32, u64);

/// An effect of an instance on others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InstanceEffect {
    /// The instance sends an item.
    Send(InstanceKey, Item<NumberedRecord>),
    /// The instance has taken the snapshot of an epoch, with this state.
    Snapshot(Epoch, Counts),
    /// The instance has completed.
    Ended,
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
    inputs: InputGate<NumberedRecord>,
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
            inputs: InputGate::new(inputs.map(|(_, index)| index), true),
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
    pub fn read(&mut self, row: &VertexChain, wants: impl Fn(u32) -> bool) -> Vec<InstanceEffect> {
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
                effects.extend(
                    to.map(|to| InstanceEffect::Send(to, Item::Record((partition, *offset)))),
                );
                *offset += 1;
            }
            is_over &= row.records.is_some_and(|records| *offset >= records);
        }
        if is_over {
            self.end(row, &mut effects);
        }
        effects
    }

    pub fn end_epoch(&mut self, epoch: Epoch, row: &VertexChain) -> Vec<InstanceEffect> {
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
        item: Item<NumberedRecord>,
        row: &VertexChain,
    ) -> Result<Vec<InstanceEffect>, String> {
        let mut effects = Vec::new();
        self.inputs.push(from, item);
        while let Some(item) = self.inputs.next() {
            if let Item::Record((partition, offset)) = item {
                self.count(partition, offset, row, &mut effects)?;
            }
            match self.inputs.reached() {
                Some(InputAlignment::Barrier(epoch)) => self.snapshot(epoch, row, &mut effects),
                Some(InputAlignment::End) => self.end(row, &mut effects),
                None => {}
            }
        }
        Ok(effects)
    }

    fn count(
        &mut self,
        partition: u32,
        offset: u64,
        row: &VertexChain,
        effects: &mut Vec<InstanceEffect>,
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
        effects.extend(to.map(|to| InstanceEffect::Send(to, Item::Record((partition, offset)))));
        Ok(())
    }

    fn snapshot(&mut self, epoch: Epoch, row: &VertexChain, effects: &mut Vec<InstanceEffect>) {
        if self.last_snapshot >= Some(epoch) {
            return;
        }
        self.last_snapshot = Some(epoch);
        self.is_at_snapshot = true;
        effects.push(InstanceEffect::Snapshot(epoch, self.counts.clone()));
        let below = row.all_of(self.which.0 + 1);
        effects.extend(below.map(|to| InstanceEffect::Send(to, Item::Marker(epoch))));
    }

    fn end(&mut self, row: &VertexChain, effects: &mut Vec<InstanceEffect>) {
        if !std::mem::replace(&mut self.has_ended, true) {
            effects.push(InstanceEffect::Ended);
            let below = row.all_of(self.which.0 + 1);
            effects.extend(below.map(|to| InstanceEffect::Send(to, Item::Done)));
        }
    }
}
