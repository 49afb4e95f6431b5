//! Restored entries.

use crate::state::{RUNTIME_STATE, StateChunk};
use crate::{Error, ErrorCode, Instance, PartitionId};

/// An entry restored to an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestoredEntry<'a> {
    /// The name of the state.
    pub state: &'a str,
    /// The partition of the key, which this instance owns; `None` if all instances get the entry.
    pub partition: Option<PartitionId>,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// The entries restored to an instance, some at a time: those of its own partitions, and those
/// without a partition.
///
/// Entries that are not taken are offered again, before later ones. Removed keys are skipped.
///
/// ```
/// use ardea_core::{Instance, RestoredState, StateChunk, StateEntry};
///
/// let mut chunk = StateChunk::default();
/// chunk.push(StateEntry { state: "offset", partition: None, key: b"file", value: Some(b"17") })?;
/// let mut position = 0;
/// let mut state = RestoredState::new(&chunk, &mut position, Instance::ONLY, 100);
/// let entry = state.next().unwrap();
/// assert_eq!((entry.state, entry.key, entry.value), ("offset", &b"file"[..], &b"17"[..]));
/// assert!(state.next().is_none());
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct RestoredState<'a> {
    chunk: &'a StateChunk,
    position: &'a mut usize,
    instance: Instance,
    left: usize,
}

impl<'a> RestoredState<'a> {
    /// For the runtime: offers `instance` its entries of `chunk` from `position` on, at most `most`
    /// of them; advances `position`.
    pub fn new(
        chunk: &'a StateChunk,
        position: &'a mut usize,
        instance: Instance,
        most: usize,
    ) -> Self {
        RestoredState {
            chunk,
            position,
            instance,
            left: most,
        }
    }

    /// Returns the error for an entry of a state that the processor does not have.
    pub fn unknown(entry: &RestoredEntry<'_>) -> Error {
        let what = format!(
            "the snapshot contains the state {:?}, which this operator does not have",
            entry.state
        );
        Error::new(ErrorCode::InvalidJob, what).hint(
            "start the job as it was when the checkpoint was taken, or without the checkpoint",
        )
    }

    /// Returns true if an entry with this partition, or none, goes to this instance.
    fn is_for(instance: Instance, partition: Option<PartitionId>) -> bool {
        partition.is_none_or(|partition| partition.owner(instance.parallelism) == instance.index)
    }
}

impl<'a> Iterator for RestoredState<'a> {
    type Item = RestoredEntry<'a>;

    fn next(&mut self) -> Option<RestoredEntry<'a>> {
        if self.left == 0 {
            return None;
        }
        let chunk = self.chunk;
        let mut entries = chunk.entries_from(*self.position);
        let found = entries.by_ref().find_map(|entry| {
            let is_own = !entry.state.starts_with(RUNTIME_STATE)
                && RestoredState::is_for(self.instance, entry.partition);
            let value = entry.value.filter(|_| is_own)?;
            Some(RestoredEntry {
                state: entry.state,
                partition: entry.partition,
                key: entry.key,
                value,
            })
        });
        *self.position = entries.position();
        self.left -= usize::from(found.is_some());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PARTITION_COUNT, StateEntry};

    fn chunk() -> StateChunk {
        let mut chunk = StateChunk::default();
        let mut push = |state, partition, key: &[u8], value| {
            let entry = StateEntry {
                state,
                partition,
                key,
                value,
            };
            chunk.push(entry).unwrap();
        };
        push("@runtime", None, b"", Some(&b"x"[..]));
        for index in 0..PARTITION_COUNT {
            let partition = PartitionId::from_index(index);
            push("keyed", partition, &index.to_le_bytes(), Some(b"v"));
        }
        push("keyed", PartitionId::from_index(0), b"gone", None);
        push("all", None, b"k", Some(b"v"));
        chunk
    }

    #[test]
    fn every_partition_goes_to_one_instance_and_what_has_none_to_all() {
        let chunk = chunk();
        for parallelism in [1, 3, 7] {
            let mut keyed = 0;
            for index in 0..parallelism {
                let instance = Instance { index, parallelism };
                let mut position = 0;
                let state = RestoredState::new(&chunk, &mut position, instance, usize::MAX);
                let entries: Vec<_> = state.collect();
                assert_eq!(entries.last().map(|entry| entry.state), Some("all"));
                keyed += entries.len() - 1;
                assert_eq!(position, chunk.byte_len());
            }
            assert_eq!(keyed, PARTITION_COUNT as usize);
        }
    }

    #[test]
    fn what_is_not_taken_comes_again() {
        let chunk = chunk();
        let (mut position, mut calls, mut keys) = (0, 0, Vec::new());
        while position < chunk.byte_len() {
            let state = RestoredState::new(&chunk, &mut position, Instance::ONLY, 100);
            keys.extend(state.map(|entry| entry.key.to_vec()));
            calls += 1;
        }
        assert_eq!(keys.len(), PARTITION_COUNT as usize + 1);
        assert_eq!(calls, 11);
    }
}
