//! Cuts that are small enough to be written down when they are taken, and what an increment has to say is gone.

use std::collections::VecDeque;

use crate::state::StateChunk;
use crate::{CutWriter, Epoch, Progress, Result};

/// The entries of a cut that are so few that they are written down when it is taken: how far a source has read, for example.
///
/// ```
/// use ardea_core::{CutDraft, CutWriter, StateChunk, StateEntry};
///
/// let mut draft = CutDraft::default();
/// // When the cut is taken:
/// draft.begin().push(StateEntry { state: "offset", partition: None, key: b"file", value: Some(b"17") })?;
/// // While records go on:
/// let mut chunk = StateChunk::default();
/// assert!(draft.write(&mut CutWriter::new(&mut chunk, 1_000))?.done);
/// assert_eq!(chunk.len(), 1);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct CutDraft {
    chunk: StateChunk,
    /// How much of it has been written.
    position: usize,
}

impl CutDraft {
    /// Another cut is taken: the place for its entries, empty. What was left of the one before is void.
    pub fn begin(&mut self) -> &mut StateChunk {
        self.chunk.clear();
        self.position = 0;
        &mut self.chunk
    }

    /// Writes what has not been written yet, as far as there is room; done when that is all.
    ///
    /// # Errors
    /// As [`CutWriter::copy`].
    pub fn write(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
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

/// Keys that are gone since the last commit, which an increment has to say. Each is noted once, and never comes back.
///
/// ```
/// use ardea_core::{Epoch, GoneKeys};
///
/// let mut gone = GoneKeys::default();
/// gone.note(b"a".to_vec());
/// gone.freeze(Epoch(1));
/// gone.note(b"b".to_vec());
/// assert_eq!(gone.iter().count(), 2);
/// gone.commit(Epoch(1));
/// assert_eq!(gone.iter().collect::<Vec<_>>(), [b"b"]);
/// ```
#[derive(Debug, Default)]
pub struct GoneKeys {
    /// Each with the epoch whose cut was the first to say it, if one has.
    keys: VecDeque<(Option<Epoch>, Vec<u8>)>,
}

impl GoneKeys {
    /// A key is gone.
    pub fn note(&mut self, key: Vec<u8>) {
        self.keys.push_back((None, key));
    }

    /// A cut is taken that says so of all there are.
    pub fn freeze(&mut self, epoch: Epoch) {
        let unsaid = self.keys.iter_mut().rev();
        for (said, _) in unsaid.take_while(|(said, _)| said.is_none()) {
            *said = Some(epoch);
        }
    }

    /// An epoch is committed: what its cut said need not be said again.
    pub fn commit(&mut self, epoch: Epoch) {
        let is_over = |(said, _): &mut (Option<Epoch>, _)| said.is_some_and(|said| said <= epoch);
        while self.keys.pop_front_if(is_over).is_some() {}
    }

    /// All that an increment has to say are gone.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|(_, key)| key.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StateEntry;

    #[test]
    fn a_draft_is_written_in_pieces_and_begins_anew_with_the_next_cut() {
        let mut draft = CutDraft::default();
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
                    .write(&mut CutWriter::new(&mut written, limit))
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
            CutDraft::default()
                .write(&mut CutWriter::new(&mut StateChunk::default(), 0))
                .unwrap()
                .done
        );
    }

    #[test]
    fn what_is_gone_is_said_until_a_cut_that_said_it_is_committed() {
        let mut gone = GoneKeys::default();
        gone.note(vec![1]);
        gone.freeze(Epoch(1));
        gone.note(vec![2]);
        gone.freeze(Epoch(2));
        gone.note(vec![3]);
        // The first was given up; the second holds what it said.
        assert_eq!(gone.iter().count(), 3);
        gone.commit(Epoch(2));
        assert_eq!(gone.iter().collect::<Vec<_>>(), [[3]]);
    }
}
