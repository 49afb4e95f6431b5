//! Helpers for snapshots that are small enough to be written at once, and for removed keys in
//! increments.

use std::collections::VecDeque;

use crate::state::StateChunk;
use crate::{Epoch, Progress, Result, SnapshotWriter};

/// A snapshot of few entries that are collected at once, such as the read position of a source.
///
/// ```
/// use ardea_core::{SmallSnapshot, SnapshotWriter, StateChunk, StateEntry};
///
/// let mut draft = SmallSnapshot::default();
/// // When the snapshot is taken:
/// draft.begin().push(StateEntry { state: "offset", partition: None, key: b"file", value: Some(b"17") })?;
/// // While records go on:
/// let mut chunk = StateChunk::default();
/// assert!(draft.write(&mut SnapshotWriter::new(&mut chunk, 1_000))?.done);
/// assert_eq!(chunk.len(), 1);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct SmallSnapshot {
    chunk: StateChunk,
    /// The position in `chunk` of the next entry to write.
    position: usize,
}

impl SmallSnapshot {
    /// Starts a new snapshot and returns the buffer for its entries. The rest of the previous
    /// snapshot is dropped.
    pub fn begin(&mut self) -> &mut StateChunk {
        self.chunk.clear();
        self.position = 0;
        &mut self.chunk
    }

    /// Writes the remaining entries while there is room; done when all are written.
    ///
    /// # Errors
    /// As [`SnapshotWriter::copy`].
    pub fn write(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let before = self.position;
        let mut entries = self.chunk.entries_from(self.position);
        while writer.has_room() {
            let Some(entry) = entries.next() else {
                break;
            };
            writer.copy(entry)?;
            self.position = entries.position();
        }
        Ok(Progress {
            made: self.position > before,
            done: self.position == self.chunk.byte_len(),
        })
    }
}

/// Keys removed since the last commit, to be reported in increments. A key is added once, and must
/// not be used again.
///
/// ```
/// use ardea_core::{Epoch, RemovedKeys};
///
/// let mut gone = RemovedKeys::default();
/// gone.add(b"a".to_vec());
/// gone.freeze(Epoch(1));
/// gone.add(b"b".to_vec());
/// assert_eq!(gone.iter().count(), 2);
/// gone.commit(Epoch(1));
/// assert_eq!(gone.iter().collect::<Vec<_>>(), [b"b"]);
/// ```
#[derive(Debug, Default)]
pub struct RemovedKeys {
    /// Each key with the epoch of the first snapshot that reported it, if any.
    keys: VecDeque<(Option<Epoch>, Vec<u8>)>,
}

impl RemovedKeys {
    /// Adds a removed key.
    pub fn add(&mut self, key: Vec<u8>) {
        self.keys.push_back((None, key));
    }

    /// Records that the snapshot of this epoch reports all keys.
    pub fn freeze(&mut self, epoch: Epoch) {
        let unsaid = self.keys.iter_mut().rev();
        for (said, _) in unsaid.take_while(|(said, _)| said.is_none()) {
            *said = Some(epoch);
        }
    }

    /// Drops the keys reported by a snapshot up to the committed epoch.
    pub fn commit(&mut self, epoch: Epoch) {
        let is_over = |(said, _): &mut (Option<Epoch>, _)| said.is_some_and(|said| said <= epoch);
        while self.keys.pop_front_if(is_over).is_some() {}
    }

    /// Returns all removed keys that an increment must report.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|(_, key)| key.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StateEntry;

    #[test]
    fn a_draft_is_written_in_pieces_and_begins_anew_with_the_next_snapshot() {
        let mut draft = SmallSnapshot::default();
        for round in 0..2u8 {
            let chunk = draft.begin();
            for key in 0..10 {
                let (key, value) = ([round, key], [7; 10]);
                chunk
                    .push(StateEntry {
                        state: "s",
                        partition: None,
                        key: &key,
                        value: Some(&value),
                    })
                    .unwrap();
            }
            let mut written = StateChunk::default();
            let mut calls = 0;
            loop {
                let limit = written.byte_len() + 1;
                calls += 1;
                let progress = draft
                    .write(&mut SnapshotWriter::new(&mut written, limit))
                    .unwrap();
                if progress.done {
                    break;
                }
                assert!(progress.made);
                if round == 0 && calls == 3 {
                    break;
                }
            }
            let keys: Vec<_> = written.entries().map(|entry| entry.key.to_vec()).collect();
            let count = if round == 0 { 3 } else { 10 };
            assert!(keys.into_iter().eq((0..count).map(|key| vec![round, key])));
        }
        assert!(
            SmallSnapshot::default()
                .write(&mut SnapshotWriter::new(&mut StateChunk::default(), 0))
                .unwrap()
                .done
        );
    }

    #[test]
    fn what_is_gone_is_said_until_a_snapshot_that_said_it_is_committed() {
        let mut gone = RemovedKeys::default();
        gone.add(vec![1]);
        gone.freeze(Epoch(1));
        gone.add(vec![2]);
        gone.freeze(Epoch(2));
        gone.add(vec![3]);
        // The first epoch was aborted; the snapshot of the second holds its keys.
        assert_eq!(gone.iter().count(), 3);
        gone.commit(Epoch(2));
        assert_eq!(gone.iter().collect::<Vec<_>>(), [[3]]);
    }
}
