//! What is read in one go.

use crate::store::{Entries, PartitionRange, Place, Snapshot};
use ardea_core::{Instance, PartitionId, Result, StateChunk, StateEntry};

/// How many bytes a chunk has, about, when it is handed over.
const CHUNK_BYTES: usize = 64 << 10;

/// Whose state is read.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) snapshot: Snapshot,
    pub(super) vertex: String,
    pub(super) own: PartitionRange,
}

/// A part of an instance's state that is being read: of each state some entries.
pub(super) struct Part {
    /// The last is read first.
    states: Vec<(String, Entries)>,
    pub(super) brings: Brings,
    /// What was read of those with lower ones is taken first.
    pub(super) number: u64,
}

/// What is known to be there when a part has been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Brings {
    /// Nothing: all parts have to be.
    Nothing,
    /// What has no partition.
    Base,
    /// These partitions.
    Partitions(PartitionRange),
}

impl Subject {
    pub(super) fn new(snapshot: &Snapshot, vertex: &str, instance: Instance) -> Self {
        Subject {
            snapshot: snapshot.clone(),
            vertex: vertex.to_string(),
            own: PartitionRange::of_instance(instance.index, instance.parallelism),
        }
    }

    /// All there is, to be read so many parts of a state at a time.
    pub(super) fn whole(&self, share: u32) -> Vec<Part> {
        let ranges = self.own.split(share);
        let mut parts = Vec::new();
        for state in self.snapshot.states(&self.vertex) {
            let mut add = |entries| {
                parts.push(Part {
                    states: vec![(state.to_string(), entries)],
                    brings: Brings::Nothing,
                    number: 0,
                });
            };
            add(self.snapshot.unpartitioned(&self.vertex, state));
            for range in &ranges {
                add(self.snapshot.entries(&self.vertex, state, *range));
            }
        }
        parts
    }

    /// What has no partition.
    pub(super) fn base(&self) -> Part {
        self.part((Brings::Base, 0), |state| {
            self.snapshot.unpartitioned(&self.vertex, state)
        })
    }

    /// These partitions, as the part of this number.
    pub(super) fn partitions(&self, range: PartitionRange, number: u64) -> Part {
        self.part((Brings::Partitions(range), number), |state| {
            self.snapshot.entries(&self.vertex, state, range)
        })
    }

    fn part(&self, (brings, number): (Brings, u64), entries: impl Fn(&str) -> Entries) -> Part {
        let states = self.snapshot.states(&self.vertex).into_iter();
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
    /// Puts the next entries into a chunk; whether there are more.
    pub(super) fn fill(&mut self, chunk: &mut StateChunk) -> Result<bool> {
        while let Some((state, entries)) = self.states.last_mut() {
            while let Some(entry) = entries.next_entry()? {
                let partition = match entry.place {
                    Place::Partition(partition) => Some(partition),
                    Place::Instance(_) => None,
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

/// The partitions of a range.
pub(super) fn partitions(range: PartitionRange) -> impl Iterator<Item = PartitionId> {
    (range.first()..range.end()).filter_map(PartitionId::from_index)
}
