//! Assignment of changes to snapshots, for tables that track their own changes.

use std::collections::VecDeque;

use ardea_core::{Epoch, Progress, Result, SnapshotRequest, SnapshotWriter, StateChunk};

use crate::changes::active_snapshot::ActiveSnapshot;

/// The snapshots of one processor. Time is counted in generations, from one snapshot to the next.
///
/// Each entry of a table has a `Stamp` with the generation of its last change. Each
/// snapshot scans the tables, so that no list of changes is needed. A table without changes since
/// the last commit is skipped.
#[derive(Debug)]
pub struct SnapshotLog {
    /// The current generation.
    generation: u32,
    /// The generation up to which changes are committed.
    base: u32,
    /// The snapshots that are not known to be committed, the oldest first, with the generations
    /// that ended with them.
    undecided: VecDeque<(Epoch, u32)>,
    at_hand: ActiveSnapshot<SnapshotPoint>,
}

/// A snapshot in progress.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotPoint {
    is_full: bool,
    /// The generation that ended with the snapshot.
    pub(crate) generation: u32,
    /// The base generation of an increment, exclusive.
    base: u32,
}

impl SnapshotPoint {
    /// Returns true if an entry last changed in generation `changed` belongs to the snapshot.
    #[inline]
    pub(crate) fn holds(&self, changed: u32) -> bool {
        changed <= self.generation && (self.is_full || changed > self.base)
    }

    /// Returns true if the snapshot may contain entries of a table last changed in generation
    /// `latest`.
    pub(crate) fn may_hold(&self, latest: u32) -> bool {
        self.is_full || latest > self.base
    }

    /// Returns true for a full snapshot.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the generation that ended with the snapshot.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns true if an entry removed in generation `removed` was present when the snapshot was
    /// taken.
    pub fn is_before(&self, removed: u32) -> bool {
        self.generation < removed
    }

    /// Returns true if the snapshot contains tombstones.
    pub fn names_removed(&self) -> bool {
        !self.is_full
    }
}

impl Default for SnapshotLog {
    fn default() -> Self {
        SnapshotLog {
            generation: 1,
            base: 0,
            undecided: VecDeque::new(),
            at_hand: ActiveSnapshot::default(),
        }
    }
}

impl SnapshotLog {
    /// Creates a log that continues after `base` committed generations.
    pub fn after(base: u32) -> Self {
        SnapshotLog {
            generation: base + 1,
            base,
            ..SnapshotLog::default()
        }
    }

    /// Returns the generation up to which changes are committed.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// Returns the current generation.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the snapshot in progress.
    #[inline]
    pub fn writing(&self) -> Option<SnapshotPoint> {
        self.at_hand.get().copied()
    }

    /// Captures the current contents for a snapshot.
    pub fn take_snapshot(&mut self, snapshot: SnapshotRequest) {
        self.end();
        self.undecided.push_back((snapshot.epoch, self.generation));
        let writing = SnapshotPoint {
            is_full: snapshot.is_full(),
            generation: self.generation,
            base: self.base,
        };
        self.at_hand.begin(snapshot, writing);
        self.generation += 1;
    }

    /// Sets aside a copy of an entry of the snapshot, as the entry is about to change.
    pub(crate) fn put_aside(&mut self, write: impl FnOnce(&mut StateChunk) -> Result<()>) {
        self.at_hand.put_aside(write);
    }

    /// Starts a write call: writes the entries set aside first, and returns the snapshot in
    /// progress, if any.
    pub fn write_aside(
        &mut self,
        writer: &mut SnapshotWriter<'_>,
    ) -> Result<Option<SnapshotPoint>> {
        if let Err(error) = self.at_hand.write_aside(writer) {
            self.end();
            return Err(error);
        }
        Ok(self.writing())
    }

    /// Ends the scan. Done unless entries set aside found no room.
    pub fn finish(&mut self) -> Progress {
        let is_whole = self.at_hand.has_nothing_aside();
        if is_whole {
            self.end();
        }
        Progress::done_if(is_whole)
    }

    /// Ends the snapshot, which is complete or void.
    pub fn end(&mut self) {
        if let Some(epoch) = self.at_hand.end() {
            self.commit(epoch);
        }
    }

    /// Handles the commit of an epoch. The commit is deferred while a snapshot is being written.
    pub fn commit(&mut self, epoch: Epoch) {
        if self.at_hand.defer_commit(epoch) {
            return;
        }
        while let Some((_, generation)) = self.undecided.pop_front_if(|(of, _)| *of <= epoch) {
            self.base = generation;
        }
    }

    /// Handles the abort of `epoch`, whose snapshot is void.
    pub fn abort(&mut self, epoch: Epoch) {
        if self.at_hand.is_void_without(epoch) {
            self.end();
        }
        let lasts = self.at_hand.epoch();
        self.undecided
            .retain(|(of, _)| *of != epoch || lasts == Some(epoch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_counts_once_the_snapshot_at_hand_is_written() {
        let mut log = SnapshotLog::default();
        log.take_snapshot(SnapshotRequest::full(Epoch(1)));
        log.end();
        log.take_snapshot(SnapshotRequest::changes(Epoch(2), Epoch(0)));
        log.commit(Epoch(1));
        assert_eq!(log.base(), 0);
        assert!(
            log.writing().is_some_and(|snapshot| snapshot.holds(1)
                && snapshot.holds(2)
                && !snapshot.holds(3))
        );
        log.end();
        assert_eq!(log.base(), 1);
    }

    #[test]
    fn an_aborted_snapshot_is_never_a_base() {
        let mut log = SnapshotLog::after(3);
        assert_eq!((log.base(), log.generation()), (3, 4));
        log.take_snapshot(SnapshotRequest::full(Epoch(1)));
        log.abort(Epoch(1));
        log.take_snapshot(SnapshotRequest::full(Epoch(2)));
        log.end();
        log.commit(Epoch(1));
        assert_eq!(log.base(), 3);
        log.commit(Epoch(2));
        assert_eq!(log.base(), 5);
    }

    #[test]
    fn a_snapshot_that_was_aborted_is_void_unless_it_is_the_last() {
        let mut log = SnapshotLog::default();
        log.take_snapshot(SnapshotRequest::full(Epoch(1)));
        log.abort(Epoch(1));
        assert!(log.writing().is_none());
        log.take_snapshot(SnapshotRequest {
            is_last: true,
            ..SnapshotRequest::full(Epoch(2))
        });
        log.abort(Epoch(2));
        assert!(log.writing().is_some());
    }
}
