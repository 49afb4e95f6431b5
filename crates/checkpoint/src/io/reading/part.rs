//! A unit of reading: a part of an instance's state.

use crate::store::{Checkpoint, Entries, KeySlot, PartitionRange};
use ardea_core::{Instance, PartitionId, Result, StateChunk, StateEntry};

/// The approximate size of a chunk.
const CHUNK_BYTES: usize = 64 << 10;

/// The instance whose state is read.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) checkpoint: Checkpoint,
    pub(super) vertex: String,
    pub(super) own: PartitionRange,
}

/// A part of an instance's state while it is read: one state, or the same partitions of all states.
pub(super) struct Part {
    /// The states with the entries still to read; the last one is read first.
    states: Vec<(String, Entries)>,
    pub(super) brings: PartContent,
    /// The number of the part: chunks of lower numbers are consumed first.
    pub(super) number: u64,
}

/// The state that the instance has completely once a part has been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PartContent {
    /// No state: it is complete only when all parts have been read.
    Nothing,
    /// The unpartitioned state.
    Base,
    /// The state of the given partitions.
    Partitions(PartitionRange),
}

impl Subject {
    pub(super) fn new(checkpoint: &Checkpoint, vertex: &str, instance: Instance) -> Self {
        Subject {
            checkpoint: checkpoint.clone(),
            vertex: vertex.to_string(),
            own: PartitionRange::of_instance(instance.index, instance.parallelism),
        }
    }

    /// Returns the parts of the instance's whole state: for each state the unpartitioned entries,
    /// and `share` ranges of partitions.
    pub(super) fn whole(&self, share: u32) -> Vec<Part> {
        let ranges = self.own.split(share);
        let mut parts = Vec::new();
        for state in self.checkpoint.states(&self.vertex) {
            let mut add = |entries| {
                parts.push(Part {
                    states: vec![(state.to_string(), entries)],
                    brings: PartContent::Nothing,
                    number: 0,
                });
            };
            add(self.checkpoint.unpartitioned(&self.vertex, state));
            for range in &ranges {
                add(self.checkpoint.entries(&self.vertex, state, *range));
            }
        }
        parts
    }

    /// Returns the part with the unpartitioned entries of all states.
    pub(super) fn base(&self) -> Part {
        self.part((PartContent::Base, 0), |state| {
            self.checkpoint.unpartitioned(&self.vertex, state)
        })
    }

    /// Returns the part with the partitions of `range`, with this part number.
    pub(super) fn partitions(&self, range: PartitionRange, number: u64) -> Part {
        self.part((PartContent::Partitions(range), number), |state| {
            self.checkpoint.entries(&self.vertex, state, range)
        })
    }

    fn part(
        &self,
        (brings, number): (PartContent, u64),
        entries: impl Fn(&str) -> Entries,
    ) -> Part {
        let states = self.checkpoint.states(&self.vertex).into_iter();
        Part {
            states: states
                .map(|name| (name.to_string(), entries(name)))
                .collect(),
            brings,
            number,
        }
    }
}

impl Part {
    /// Adds the part's next entries to `chunk`. Returns true if the part has more.
    pub(super) fn fill(&mut self, chunk: &mut StateChunk) -> Result<bool> {
        while let Some((state, entries)) = self.states.last_mut() {
            while let Some(entry) = entries.next_entry()? {
                let partition = match entry.place {
                    KeySlot::Partition(partition) => Some(partition),
                    KeySlot::Instance(_) => None,
                };
                chunk.push(StateEntry {
                    state,
                    partition,
                    key: entry.key,
                    value: Some(entry.value),
                })?;
                if chunk.byte_len() >= CHUNK_BYTES {
                    return Ok(true);
                }
            }
            self.states.pop();
        }
        Ok(false)
    }
}

/// Returns the partitions of a range.
pub(super) fn partitions(range: PartitionRange) -> impl Iterator<Item = PartitionId> {
    (range.first()..range.end()).filter_map(PartitionId::from_index)
}
