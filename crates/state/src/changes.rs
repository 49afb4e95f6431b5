//! Change tracking: which entries belong to a snapshot or an increment.
//!
//! * `Changes`: lists of changed slots, for tables whose entries change rarely within an epoch;
//!   `slot_versions` adds the removed keys;
//! * `change_stamps`: a stamp per entry and a scan, for tables of which most entries change;
//!   `snapshot_log` assigns the stamps to snapshots;
//! * `active_snapshot`: the snapshot in progress, for both.

pub(crate) mod active_snapshot;
pub(crate) mod change_stamps;
pub(crate) mod slot_versions;
pub(crate) mod snapshot_log;

use std::collections::VecDeque;
use std::mem;

use ardea_core::{Epoch, Result, SnapshotRequest, SnapshotWriter, StateChunk};

use crate::changes::active_snapshot::ActiveSnapshot;

/// The slots changed since the last commit, grouped by snapshot, and the snapshot in progress.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The slots changed since the last snapshot, each once.
    now: Vec<u32>,
    /// The changes of snapshots that are not known to be committed, the oldest first. A slot may
    /// occur in several.
    undecided: VecDeque<SnapshotChanges>,
    /// The generation up to which changes are committed.
    pub base: u32,
    at_hand: ActiveSnapshot<SnapshotCursor>,
}

/// The changes between two snapshots.
#[derive(Debug)]
struct SnapshotChanges {
    epoch: Epoch,
    generation: u32,
    slots: Vec<u32>,
    /// True if any slot may have changed. The slots are then not listed.
    is_all: bool,
    /// True if the epoch was aborted. The changes belong to the next increment; the snapshot is
    /// never restored.
    is_void: bool,
}

/// The position of a snapshot in progress.
#[derive(Debug)]
pub(crate) struct SnapshotCursor {
    /// The generation that ended with the snapshot.
    pub generation: u32,
    /// The number of slots at the time of the snapshot.
    count: u32,
    is_full: bool,
    /// For an increment: the base generation, exclusive, and the number of lists.
    pub base: u32,
    lists: usize,
    /// The list being written, and the position in it.
    list: usize,
    next: usize,
}

impl SnapshotCursor {
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns true if a slot last changed in generation `changed` is written in place. Slots
    /// changed after the snapshot have been set aside before.
    pub(crate) fn takes(&self, changed: u32) -> bool {
        self.is_full() || (self.base < changed && changed <= self.generation)
    }

    /// Returns the next slot of a scan of all slots.
    fn next_of_all(&mut self) -> Option<u32> {
        let slot = Some(self.next as u32).filter(|slot| *slot < self.count)?;
        self.next += 1;
        Some(slot)
    }

    /// Returns true if the snapshot contains `slot`, last changed in generation `changed` before
    /// the snapshot.
    pub(crate) fn holds(&self, slot: u32, changed: u32) -> bool {
        match self.is_full {
            true => slot < self.count,
            false => self.base < changed && changed <= self.generation,
        }
    }
}

impl Changes {
    /// Adds a slot that has changed for the first time since the last snapshot.
    pub(crate) fn note(&mut self, slot: u32) {
        self.now.push(slot);
    }

    /// Returns true if a removed key needs a tombstone: a valid or pending snapshot contains the
    /// key, created in generation `born`, and no committed one contains the removal in generation
    /// `gone`.
    pub(crate) fn is_known(&self, born: u32, gone: u32) -> bool {
        let holds =
            |frozen: &SnapshotChanges| !frozen.is_void && (born..gone).contains(&frozen.generation);
        self.base < gone && (born <= self.base || self.undecided.iter().any(holds))
    }

    /// Closes the list of changes since the last snapshot, for the snapshot of `epoch`.
    pub(crate) fn freeze(&mut self, epoch: Epoch, generation: u32) {
        self.end();
        self.undecided.push_back(SnapshotChanges {
            epoch,
            generation,
            slots: mem::take(&mut self.now),
            is_all: false,
            is_void: false,
        });
    }

    /// Returns the total length of the lists.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        self.undecided.iter().map(|f| f.slots.len()).sum()
    }

    /// Returns true if the lists of undecided snapshots are longer than a scan of all slots.
    fn have_grown_beyond(&self, slots: usize) -> bool {
        let listed = self.undecided.iter().map(|frozen| match frozen.is_all {
            true => slots + 1,
            false => frozen.slots.len(),
        });
        self.undecided.len() > 1 && listed.sum::<usize>() > slots
    }

    /// Replaces the lists by a scan of all slots. Of the earlier snapshots, only their epochs are
    /// retained, as they may still be committed.
    fn merge(&mut self) {
        if let Some(mut last) = self.undecided.pop_back() {
            (last.slots, last.is_all) = (Vec::new(), true);
            self.undecided.retain(|frozen| !frozen.is_void);
            for frozen in &mut self.undecided {
                (frozen.slots, frozen.is_all) = (Vec::new(), false);
            }
            self.undecided.push_back(last);
        }
    }

    /// Starts to write a snapshot of `slots` slots.
    pub(crate) fn begin(&mut self, snapshot: SnapshotRequest, generation: u32, slots: usize) {
        if self.have_grown_beyond(slots) {
            self.merge();
        }
        let writing = SnapshotCursor {
            generation,
            count: slots as u32,
            is_full: snapshot.is_full(),
            base: self.base,
            lists: self.undecided.len(),
            list: 0,
            next: 0,
        };
        self.at_hand.begin(snapshot, writing);
    }

    /// Returns the snapshot in progress.
    pub(crate) fn writing(&self) -> Option<&SnapshotCursor> {
        self.at_hand.get()
    }

    /// Returns the next slot that may belong to the snapshot.
    pub(crate) fn next(&mut self) -> Option<u32> {
        let writing = self.at_hand.get_mut()?;
        if writing.is_full {
            return writing.next_of_all();
        }
        while writing.list < writing.lists {
            let frozen = self.undecided.get(writing.list)?;
            let slot = match frozen.is_all {
                true => writing.next_of_all(),
                false => {
                    writing.next += 1;
                    frozen.slots.get(writing.next - 1).copied()
                }
            };
            if slot.is_some() {
                return slot;
            }
            writing.list += 1;
            writing.next = 0;
        }
        None
    }

    /// Sets aside a copy of an entry of the snapshot, as the entry is about to change.
    pub(crate) fn put_aside(&mut self, write: impl FnOnce(&mut StateChunk) -> Result<()>) {
        self.at_hand.put_aside(write);
    }

    /// Writes the entries set aside while there is room.
    ///
    /// # Errors
    /// An entry could not be set aside, so the snapshot cannot be written.
    pub(crate) fn write_aside(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<()> {
        self.at_hand.write_aside(writer)
    }

    /// Ends the snapshot, which is complete or void.
    pub(crate) fn end(&mut self) {
        if let Some(epoch) = self.at_hand.end() {
            self.commit(epoch);
        }
    }

    /// Handles the commit of an epoch. The commit is deferred while a snapshot is being written, as
    /// the snapshot uses the lists at the time it was taken.
    pub(crate) fn commit(&mut self, epoch: Epoch) {
        if self.at_hand.defer_commit(epoch) {
            return;
        }
        while let Some(frozen) = self.undecided.pop_front_if(|frozen| frozen.epoch <= epoch) {
            self.base = frozen.generation;
        }
    }

    /// Handles the abort of `epoch`, whose snapshot is void.
    pub(crate) fn abort(&mut self, epoch: Epoch) {
        if self.at_hand.is_void_without(epoch) {
            self.end();
        }
        let goes_on = self.at_hand.epoch() == Some(epoch);
        let aborted = self.undecided.iter_mut().filter(|of| of.epoch == epoch);
        aborted.for_each(|frozen| frozen.is_void |= !goes_on);
    }
}
