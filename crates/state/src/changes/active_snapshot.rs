//! The snapshot in progress, independent of how its entries are found.

use ardea_core::{Epoch, Error, Result, SnapshotRequest, SnapshotWriter, StateChunk};

/// The snapshot in progress, with context of its writer, and the old contents of entries that have
/// changed since it was taken.
#[derive(Debug)]
pub struct ActiveSnapshot<C> {
    snapshot: Option<(SnapshotRequest, C)>,
    /// An epoch that was committed while the snapshot was in progress.
    committed: Option<Epoch>,
    aside: StateChunk,
    /// The number of entries written from `aside`.
    aside_written: usize,
    /// The error that occurred while an entry was set aside.
    failed: Option<Error>,
}

impl<C> Default for ActiveSnapshot<C> {
    fn default() -> Self {
        ActiveSnapshot {
            snapshot: None,
            committed: None,
            aside: StateChunk::default(),
            aside_written: 0,
            failed: None,
        }
    }
}

impl<C> ActiveSnapshot<C> {
    /// Starts a snapshot. The previous one has [ended](Self::end).
    pub(crate) fn begin(&mut self, snapshot: SnapshotRequest, with: C) {
        self.snapshot = Some((snapshot, with));
    }

    /// Returns the writer's context, if a snapshot is in progress.
    #[inline]
    pub(crate) fn get(&self) -> Option<&C> {
        self.snapshot.as_ref().map(|(_, with)| with)
    }

    /// Returns the writer's context mutably.
    pub(crate) fn get_mut(&mut self) -> Option<&mut C> {
        self.snapshot.as_mut().map(|(_, with)| with)
    }

    /// Returns the epoch of the snapshot.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.snapshot.as_ref().map(|(snapshot, _)| snapshot.epoch)
    }

    /// Sets aside a copy of an entry that is about to change. The snapshot contains this copy.
    pub(crate) fn put_aside(&mut self, write: impl FnOnce(&mut StateChunk) -> Result<()>) {
        if let Err(error) = write(&mut self.aside) {
            self.failed.get_or_insert(error);
        }
    }

    /// Writes the entries set aside while there is room.
    ///
    /// # Errors
    /// An entry could not be set aside, so the snapshot cannot be written.
    pub(crate) fn write_aside(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut aside = self.aside.entries_from(self.aside_written);
        while writer.has_room() {
            let Some(entry) = aside.next() else {
                break;
            };
            writer.copy(entry)?;
        }
        self.aside_written = aside.position();
        if self.aside_written == self.aside.byte_len() {
            self.aside.clear();
            self.aside_written = 0;
        }
        Ok(())
    }

    /// Returns true if all entries set aside are written.
    pub(crate) fn has_nothing_aside(&self) -> bool {
        self.aside.is_empty()
    }

    /// Ends the snapshot, which is complete or void. Returns the epoch whose commit was
    /// [deferred](Self::defer_commit).
    pub(crate) fn end(&mut self) -> Option<Epoch> {
        self.snapshot = None;
        self.aside.clear();
        self.aside_written = 0;
        self.failed = None;
        self.committed.take()
    }

    /// Defers the commit of an epoch while a snapshot is in progress, as the snapshot is written
    /// against the previous base. Returns true if deferred.
    pub(crate) fn defer_commit(&mut self, epoch: Epoch) -> bool {
        if self.snapshot.is_some() {
            self.committed = self.committed.max(Some(epoch));
        }
        self.snapshot.is_some()
    }

    /// Returns true if the abort of `epoch` voids the snapshot. A final snapshot is also valid for
    /// later epochs.
    pub(crate) fn is_void_without(&self, epoch: Epoch) -> bool {
        let is_void =
            |(snapshot, _): &(SnapshotRequest, C)| snapshot.epoch <= epoch && !snapshot.is_last;
        self.snapshot.as_ref().is_some_and(is_void)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::ErrorCode;

    fn at_hand(snapshot: SnapshotRequest) -> ActiveSnapshot<()> {
        let mut at_hand = ActiveSnapshot::default();
        at_hand.begin(snapshot, ());
        at_hand
    }

    #[test]
    fn a_commit_is_put_off_until_the_snapshot_has_ended() {
        let mut hand = ActiveSnapshot::<()>::default();
        assert!(!hand.defer_commit(Epoch(1)));
        let mut hand = at_hand(SnapshotRequest::full(Epoch(4)));
        assert!(hand.defer_commit(Epoch(3)) && hand.defer_commit(Epoch(2)));
        assert_eq!(hand.end(), Some(Epoch(3)));
        assert_eq!(hand.end(), None);
    }

    #[test]
    fn a_snapshot_is_void_without_its_epoch_unless_it_is_the_last() {
        let snapshot = SnapshotRequest::full(Epoch(4));
        assert!(!at_hand(snapshot).is_void_without(Epoch(3)));
        assert!(at_hand(snapshot).is_void_without(Epoch(4)));
        let last = SnapshotRequest {
            is_last: true,
            ..snapshot
        };
        assert!(!at_hand(last).is_void_without(Epoch(4)));
    }

    #[test]
    fn a_failed_entry_fails_the_snapshot() {
        let mut hand = at_hand(SnapshotRequest::full(Epoch(1)));
        hand.put_aside(|_| Err(Error::new(ErrorCode::LimitReached, "too large")));
        let mut chunk = StateChunk::default();
        let written = hand.write_aside(&mut SnapshotWriter::new(&mut chunk, usize::MAX));
        assert_eq!(written.unwrap_err().code(), ErrorCode::LimitReached);
    }
}
