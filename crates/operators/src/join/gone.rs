//! The records that an interval join has forgotten, for as long as a snapshot may hold them.

use std::collections::VecDeque;

use ardea_core::{CutWriter, Epoch, Result, StateChunk};

use crate::join::kept_sides::stamp_of;

/// Entries that say that records are not there any more, by the cuts before which they went.
///
/// A record that was in no cut that may count is not mentioned. So there are never more of these than there were records in cuts since, and
/// including, the last commit.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// Since the last cut.
    pub(super) now: StateChunk,
    /// Before the cuts of these generations of which no commit is known, and after the ones before; the oldest first.
    before: VecDeque<(u32, StateChunk)>,
    /// Those of the cuts that have not been given up.
    cuts: VecDeque<(Epoch, u32)>,
    /// After this generation there are lists to look through, as its cut has been given up.
    given_up: Option<u32>,
    /// Which list is being written, and where in it.
    list: usize,
    position: usize,
}

impl Gone {
    /// Whether a record of this generation is in a cut that may count; all of `base` and before are.
    pub(super) fn is_known(&self, came: u32, base: u32) -> bool {
        let latest = self.cuts.back().map_or(base, |(_, generation)| *generation);
        came <= latest
    }

    /// A cut is taken.
    pub(super) fn freeze(&mut self, epoch: Epoch, generation: u32) {
        self.before
            .push_back((generation, std::mem::take(&mut self.now)));
        self.cuts.push_back((epoch, generation));
        (self.list, self.position) = (0, 0);
    }

    /// Writes on, as far as there is room; whether all have been written.
    pub(super) fn write(&mut self, writer: &mut CutWriter<'_>) -> Result<bool> {
        while let Some((_, list)) = self.before.get(self.list) {
            let mut entries = list.entries_from(self.position);
            while writer.has_room() {
                let Some(entry) = entries.next() else { break };
                writer.copy(entry)?;
            }
            self.position = entries.position();
            if self.position < list.byte_len() {
                return Ok(false);
            }
            (self.list, self.position) = (self.list + 1, 0);
        }
        Ok(true)
    }

    /// An epoch is given up.
    pub(super) fn give_up(&mut self, epoch: Epoch) {
        let given_up = self.cuts.iter().find(|(of, _)| *of == epoch);
        if let Some((_, generation)) = given_up.copied() {
            self.cuts.retain(|(of, _)| *of != epoch);
            let first = self
                .given_up
                .map_or(generation, |first| first.min(generation));
            self.given_up = Some(first);
        }
    }

    /// No cut is being written: drops what is committed, all up to generation `base`, and what was in cuts that don't count.
    pub(super) fn settle(&mut self, base: u32) {
        self.before.retain(|(generation, _)| *generation > base);
        self.cuts.retain(|(_, generation)| *generation > base);
        let Some(given_up) = self.given_up.take() else {
            return;
        };
        let Gone {
            now, before, cuts, ..
        } = self;
        let now = (u32::MAX, now);
        let before = before
            .iter_mut()
            .map(|(generation, list)| (*generation, list));
        for (generation, list) in before.chain([now]).filter(|(of, _)| *of > given_up) {
            let older = cuts.iter().rev().find(|(_, of)| *of < generation);
            let latest = older.map_or(base, |(_, of)| *of);
            retain(list, latest);
        }
    }
}

/// Keeps the entries of records that had come by this generation.
fn retain(list: &mut StateChunk, latest: u32) {
    let is_known = |key: &[u8]| stamp_of(key).is_none_or(|stamp| stamp.generation <= latest);
    if list.entries().all(|entry| is_known(entry.key)) {
        return;
    }
    let mut kept = StateChunk::default();
    let known = list.entries().filter(|entry| is_known(entry.key));
    if known
        .map(|entry| kept.push(entry))
        .all(|pushed| pushed.is_ok())
    {
        *list = kept;
    }
}
