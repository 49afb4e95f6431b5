//! The removed records of an interval join that a checkpoint may still contain.

use std::collections::VecDeque;

use ardea_core::{Epoch, Result, SnapshotWriter, StateChunk};

use crate::join::join_state_codec::stamp_of;

/// Tombstones of removed records, grouped by the first snapshot after the removal.
///
/// A record that no valid snapshot contains needs no tombstone. The number of tombstones is
/// therefore at most the number of records in the snapshots since the last commit, inclusive.
#[derive(Debug, Default)]
pub(super) struct RemovedRecords {
    /// Removals since the last snapshot.
    pub(super) now: StateChunk,
    /// Removals before the snapshots of these generations, which are not known to be committed; the
    /// oldest first.
    before: VecDeque<(u32, StateChunk)>,
    /// The snapshots that have not been aborted.
    snapshots: VecDeque<(Epoch, u32)>,
    /// The first generation whose lists must be filtered because its snapshot was aborted.
    aborted: Option<u32>,
    /// The list being written, and the position in it.
    list: usize,
    position: usize,
}

impl RemovedRecords {
    /// Returns true if a valid snapshot may contain a record added in generation `came`.
    /// Generations up to `base` are committed.
    pub(super) fn is_known(&self, came: u32, base: u32) -> bool {
        let latest = self
            .snapshots
            .back()
            .map_or(base, |(_, generation)| *generation);
        came <= latest
    }

    /// Closes the list of removals since the last snapshot, for the snapshot of `epoch`.
    pub(super) fn freeze(&mut self, epoch: Epoch, generation: u32) {
        self.before
            .push_back((generation, std::mem::take(&mut self.now)));
        self.snapshots.push_back((epoch, generation));
        (self.list, self.position) = (0, 0);
    }

    /// Writes tombstones while there is room. Returns true if all are written.
    pub(super) fn write(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<bool> {
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

    /// Handles the abort of `epoch`, whose snapshot is void.
    pub(super) fn abort(&mut self, epoch: Epoch) {
        let aborted = self.snapshots.iter().find(|(of, _)| *of == epoch);
        if let Some((_, generation)) = aborted.copied() {
            self.snapshots.retain(|(of, _)| *of != epoch);
            let first = self
                .aborted
                .map_or(generation, |first| first.min(generation));
            self.aborted = Some(first);
        }
    }

    /// Drops the tombstones of committed generations up to `base` and of records that only aborted
    /// snapshots contain. Not called while a snapshot is being written.
    pub(super) fn settle(&mut self, base: u32) {
        self.before.retain(|(generation, _)| *generation > base);
        self.snapshots.retain(|(_, generation)| *generation > base);
        let Some(aborted) = self.aborted.take() else {
            return;
        };
        let RemovedRecords {
            now,
            before,
            snapshots,
            ..
        } = self;
        let now = (u32::MAX, now);
        let before = before
            .iter_mut()
            .map(|(generation, list)| (*generation, list));
        for (generation, list) in before.chain([now]).filter(|(of, _)| *of > aborted) {
            let older = snapshots.iter().rev().find(|(_, of)| *of < generation);
            let latest = older.map_or(base, |(_, of)| *of);
            retain(list, latest);
        }
    }
}

/// Retains the tombstones of records up to generation `latest`.
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
