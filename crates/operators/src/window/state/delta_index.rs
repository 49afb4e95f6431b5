//! An index of the packs in checkpoints: which packs are obsolete, and which entries are rewritten.
//!
//! The packs of a snapshot are a *row*. The generation of the last change of each slice entry is
//! known. Rows of snapshots older than the oldest last change are obsolete and are removed, from
//! the oldest on. The valid copy of an entry last changed in generation `c` is in the first
//! committed snapshot of generation `c` or later, as each increment contains all changes since the
//! last known commit. An incremental row that is not known to be committed, while a later one is,
//! is therefore obsolete too. A full row remains valid, as later increments do not repeat it. The
//! commit of a full snapshot makes all earlier rows obsolete.
//!
//! If few of many entries change, rows contain fewer and fewer valid entries, and the oldest would
//! never become obsolete. When rows contain more than twice as many entries as there are, snapshots
//! therefore rewrite the entries last changed in the oldest rows, about as many per snapshot as
//! have changed. A checkpoint thus has at most about four times the present number of entries.

use std::collections::VecDeque;

use ardea_core::{Epoch, PartitionId, SnapshotRequest};

use super::delta_blocks::PackCounts;

/// The minimum number of entries that a snapshot rewrites, if it rewrites any. If more have
/// changed, it rewrites as many as have changed.
const RENEWED_LEAST: usize = 256;

/// The rows that checkpoints may contain, the oldest first.
#[derive(Default)]
pub(crate) struct DeltaIndex {
    /// The difference between the sequence and the generation of a row.
    before: u64,
    rows: VecDeque<Row>,
    /// The first generation whose row may be valid. Earlier rows are obsolete.
    floor: u32,
    /// The number of changed entries in the last increment.
    changed: usize,
    /// Rows up to this generation are from an earlier attempt, whose epochs are not comparable.
    earlier: u32,
}

/// The packs of one snapshot.
pub(crate) struct Row {
    /// The generation that ended with the snapshot.
    generation: u32,
    sequence: u64,
    keys: RowKeys,
    /// The number of entries in the packs.
    entries: u64,
    /// The epoch of the snapshot.
    epoch: Epoch,
    is_full: bool,
    is_last: bool,
    state: RowState,
    /// The first generation whose snapshot contains the removal of the row.
    removed_in: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RowState {
    /// The snapshot is being written.
    Unwritten,
    /// The outcome of the epoch is unknown.
    Undecided,
    /// The epoch is committed.
    Committed,
    /// The row is obsolete, as later rows contain all of its entries. A checkpoint may still
    /// contain the row.
    Obsolete,
}

/// The keys of a row's entries.
pub(crate) enum RowKeys {
    /// The number of packs per partition.
    Packs(PackCounts),
    /// Entries of single keys in the oldest format.
    Entries(Vec<(Option<PartitionId>, Box<[u8]>)>),
}

impl RowKeys {
    fn len(&self) -> usize {
        match self {
            RowKeys::Packs(counts) => counts.len(),
            RowKeys::Entries(keys) => keys.len(),
        }
    }
}

/// A removal to write.
pub(crate) enum RemovedPacks<'a> {
    Packs {
        sequence: u64,
        partition: u16,
        count: u32,
    },
    Entry(Option<PartitionId>, &'a [u8]),
}

impl DeltaIndex {
    /// Restores the index from rows in order of their sequences: each with its sequence, keys and
    /// number of entries. Their generations are 1, 2 and so on.
    pub(crate) fn restored(rows: impl Iterator<Item = (u64, RowKeys, u64)>) -> Self {
        let row = |(generation, (sequence, keys, entries)): (u32, _)| Row {
            generation,
            sequence,
            keys,
            entries,
            epoch: Epoch(0),
            is_full: false,
            is_last: false,
            state: RowState::Committed,
            removed_in: None,
        };
        let rows: VecDeque<Row> = (1..).zip(rows).map(row).collect();
        let highest = rows.back().map_or(0, |row| row.sequence);
        DeltaIndex {
            before: highest.saturating_sub(rows.len() as u64),
            earlier: rows.len() as u32,
            rows,
            ..DeltaIndex::default()
        }
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the sequence of the row of a generation.
    pub(crate) fn sequence(&self, generation: u32) -> u64 {
        self.before.saturating_add(generation.into())
    }

    /// Adds the row of a snapshot that ends this generation. An unfinished previous snapshot is
    /// void.
    pub(crate) fn take_snapshot(&mut self, snapshot: SnapshotRequest, generation: u32) {
        self.void();
        self.rows.push_back(Row {
            generation,
            sequence: self.sequence(generation),
            keys: RowKeys::Packs(Vec::new()),
            entries: 0,
            epoch: snapshot.epoch,
            is_full: snapshot.is_full(),
            is_last: snapshot.is_last,
            state: RowState::Unwritten,
            removed_in: None,
        });
    }

    /// Removes the row of the snapshot in progress.
    pub(crate) fn void(&mut self) {
        self.rows.retain(|row| row.state != RowState::Unwritten);
    }

    /// Returns the entries to rewrite in the next increment: the generation up to which they were
    /// last changed, and their maximum number. `alive` is the present number of entries.
    pub(crate) fn renews(&self, alive: usize) -> (u32, usize) {
        let counts = |row: &&Row| row.state == RowState::Committed && row.removed_in.is_none();
        let held: u64 = self.rows.iter().filter(counts).map(|row| row.entries).sum();
        let Some(excess) = held.checked_sub(2 * alive as u64).filter(|more| *more > 0) else {
            return (0, 0);
        };
        let (mut sum, mut to) = (0, 0);
        for row in self.rows.iter().filter(counts) {
            (sum, to) = (sum + row.entries, row.generation);
            if sum >= excess {
                break;
            }
        }
        (to, self.changed.max(RENEWED_LEAST))
    }

    /// Completes the packs of an increment. `oldest` is a lower bound of the last changes of its
    /// entries. The removals of obsolete rows are written next.
    pub(crate) fn raise(&mut self, generation: u32, oldest: u32) {
        self.floor = self.floor.max(oldest.min(generation));
        for row in &mut self.rows {
            let is_needless = row.generation < self.floor || row.state == RowState::Obsolete;
            if is_needless && row.generation < generation {
                row.removed_in.get_or_insert(generation);
            }
        }
    }

    /// Returns the next removal at or after position `place` in the row of `generation`, and the
    /// position after that removal.
    pub(crate) fn gone_from(
        &self,
        (generation, place): (u32, usize),
    ) -> Option<((u32, usize), RemovedPacks<'_>)> {
        let first = self.rows.partition_point(|row| row.generation < generation);
        let gone = self
            .rows
            .range(first..)
            .filter(|row| row.removed_in.is_some());
        for row in gone {
            let place = if row.generation == generation {
                place
            } else {
                0
            };
            let entry = match &row.keys {
                RowKeys::Packs(counts) => {
                    counts
                        .get(place)
                        .map(|(partition, count)| RemovedPacks::Packs {
                            sequence: row.sequence,
                            partition: *partition,
                            count: *count,
                        })
                }
                RowKeys::Entries(keys) => keys
                    .get(place)
                    .map(|(partition, key)| RemovedPacks::Entry(*partition, key)),
            };
            if let Some(entry) = entry {
                return Some(((row.generation, place + 1), entry));
            }
        }
        None
    }

    /// Returns the epoch before which no row is valid, apart from the snapshot in progress. `None`
    /// if rows from before the restore are still valid.
    pub(crate) fn counts_since(&self) -> Option<Epoch> {
        let writing = self.rows.back()?;
        if writing.is_full {
            return Some(writing.epoch);
        }
        let mut counting = self.rows.iter().filter(|row| row.removed_in.is_none());
        let oldest = counting.next()?;
        (oldest.generation > self.earlier).then_some(oldest.epoch)
    }

    /// Prepares the index for another instance, which continues with it in a new attempt of the
    /// job.
    pub(crate) fn taken_over(&mut self) {
        self.earlier = self.rows.back().map_or(self.earlier, |row| row.generation);
    }

    /// Completes the row of the current snapshot: its packs, the number of their entries, and how
    /// many of them had changed.
    pub(crate) fn finish(&mut self, packs: PackCounts, entries: u64, changed: usize) {
        if let Some(row) = self.rows.back_mut()
            && row.state == RowState::Unwritten
        {
            if !row.is_full {
                self.changed = changed;
            }
            (row.keys, row.entries) = (RowKeys::Packs(packs), entries);
            row.state = RowState::Undecided;
        }
    }

    /// Handles the abort of an epoch: no checkpoint contains its row. A final snapshot remains
    /// valid for later epochs.
    pub(crate) fn abort(&mut self, epoch: Epoch) {
        self.rows
            .retain(|row| row.state != RowState::Undecided || row.epoch != epoch || row.is_last);
    }

    /// Handles the commit of the snapshot that ended generation `base`, and of all changes before
    /// it.
    pub(crate) fn commit(&mut self, base: u32) {
        let committed = self.rows.iter_mut().find(|row| row.generation == base);
        let Some(committed) = committed.filter(|row| row.state == RowState::Undecided) else {
            return;
        };
        committed.state = RowState::Committed;
        let is_full = committed.is_full;
        self.rows.retain_mut(|row| {
            if row.generation >= base {
                return true;
            }
            match row.state {
                RowState::Undecided if row.is_full => row.state = RowState::Committed,
                RowState::Undecided => row.state = RowState::Obsolete,
                _ => {}
            }
            !is_full && row.removed_in.is_none_or(|gone_in| gone_in > base) && row.keys.len() > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes and writes a snapshot of the next generation: one pack with `entries` entries.
    /// `oldest` is a lower bound of their last changes.
    fn snapshot(
        ledger: &mut DeltaIndex,
        snapshot: SnapshotRequest,
        generation: u32,
        (entries, oldest): (u64, u32),
    ) {
        ledger.take_snapshot(snapshot, generation);
        if !snapshot.is_full() {
            ledger.raise(generation, oldest);
        }
        ledger.finish(vec![(0, 1)], entries, entries as usize);
    }

    fn changes(epoch: u64) -> SnapshotRequest {
        SnapshotRequest::changes(Epoch(epoch), Epoch(0))
    }

    /// Returns the sequences of the removed rows.
    fn gone(ledger: &DeltaIndex) -> Vec<u64> {
        let (mut at, mut gone) = ((0, 0), Vec::new());
        while let Some((next, RemovedPacks::Packs { sequence, .. })) = ledger.gone_from(at) {
            gone.push(sequence);
            at = next;
        }
        gone
    }

    #[test]
    fn rows_go_from_the_oldest_on_when_nothing_has_stayed_as_it_was_then() {
        let mut ledger = DeltaIndex::default();
        snapshot(&mut ledger, SnapshotRequest::full(Epoch(1)), 1, (5, 1));
        ledger.commit(1);
        snapshot(&mut ledger, changes(2), 2, (2, 1));
        ledger.commit(2);
        assert!(gone(&ledger).is_empty());
        snapshot(&mut ledger, changes(3), 3, (4, 2));
        assert_eq!(gone(&ledger), [1]);
        // The removal is repeated until a snapshot that contains it is known to be committed.
        ledger.abort(Epoch(3));
        snapshot(&mut ledger, changes(4), 4, (4, 2));
        assert_eq!(gone(&ledger), [1]);
        ledger.commit(4);
        assert!(gone(&ledger).is_empty());
        assert_eq!(ledger.len(), 2);
    }

    #[test]
    fn rows_that_nothing_was_heard_of_are_needless_behind_one_that_was_committed() {
        let mut ledger = DeltaIndex::default();
        snapshot(&mut ledger, SnapshotRequest::full(Epoch(1)), 1, (5, 1));
        ledger.commit(1);
        snapshot(&mut ledger, changes(2), 2, (2, 1));
        snapshot(&mut ledger, changes(3), 3, (2, 1));
        assert!(gone(&ledger).is_empty());
        ledger.commit(3);
        snapshot(&mut ledger, changes(4), 4, (2, 1));
        assert_eq!(gone(&ledger), [2]);
    }

    #[test]
    fn a_full_snapshot_that_nothing_was_heard_of_may_be_all_there_is() {
        let mut ledger = DeltaIndex::default();
        snapshot(&mut ledger, SnapshotRequest::full(Epoch(1)), 1, (5, 1));
        ledger.commit(1);
        snapshot(&mut ledger, SnapshotRequest::full(Epoch(2)), 2, (5, 1));
        snapshot(&mut ledger, changes(3), 3, (2, 1));
        ledger.commit(3);
        snapshot(&mut ledger, changes(4), 4, (2, 1));
        assert!(gone(&ledger).is_empty());
        snapshot(&mut ledger, changes(5), 5, (2, 3));
        assert_eq!(gone(&ledger), [1, 2]);
    }

    #[test]
    fn behind_a_full_snapshot_that_is_committed_there_is_nothing_else() {
        let mut ledger = DeltaIndex::default();
        for generation in 1..4 {
            snapshot(&mut ledger, changes(generation), generation as u32, (5, 1));
            ledger.commit(generation as u32);
        }
        snapshot(&mut ledger, SnapshotRequest::full(Epoch(4)), 4, (5, 1));
        assert_eq!(ledger.len(), 4);
        ledger.commit(4);
        assert_eq!(ledger.len(), 1);
    }

    #[test]
    fn a_snapshot_that_is_not_written_to_its_end_leaves_no_row() {
        let mut ledger = DeltaIndex::default();
        ledger.take_snapshot(SnapshotRequest::full(Epoch(1)), 1);
        ledger.take_snapshot(SnapshotRequest::full(Epoch(2)), 2);
        assert_eq!(ledger.len(), 1);
        ledger.void();
        assert_eq!(ledger.len(), 0);
    }

    #[test]
    fn what_is_older_than_the_oldest_row_that_is_not_gone_does_not_count() {
        let mut ledger = DeltaIndex::default();
        let mut since = Vec::new();
        for generation in 1..6_u32 {
            let epoch = u64::from(generation) + 10;
            let taken = if generation == 1 {
                SnapshotRequest::full(Epoch(epoch))
            } else {
                changes(epoch)
            };
            ledger.take_snapshot(taken, generation);
            if generation > 1 {
                // All entries were changed in the two generations before.
                ledger.raise(generation, generation.saturating_sub(2));
            }
            since.extend(ledger.counts_since().map(|epoch| epoch.0));
            ledger.finish(vec![(0, 1)], 1, 1);
            ledger.commit(generation);
        }
        assert_eq!(since, [11, 11, 11, 12, 13]);
        ledger.take_snapshot(SnapshotRequest::full(Epoch(16)), 6);
        assert_eq!(ledger.counts_since(), Some(Epoch(16)));
    }

    #[test]
    fn nothing_is_said_of_epochs_as_long_as_something_of_an_earlier_life_counts() {
        let row = |sequence| (sequence, RowKeys::Packs(vec![(3, 2)]), 1);
        let mut ledger = DeltaIndex::restored([row(1), row(2)].into_iter());
        ledger.take_snapshot(changes(7), 3);
        assert_eq!(ledger.counts_since(), None);
        ledger.raise(3, 2);
        assert_eq!(ledger.counts_since(), None);
        ledger.raise(3, 3);
        assert_eq!(ledger.counts_since(), Some(Epoch(7)));
        ledger.finish(vec![(0, 1)], 1, 1);
        ledger.taken_over();
        ledger.take_snapshot(changes(2), 4);
        assert_eq!(ledger.counts_since(), None);
        ledger.raise(4, 4);
        assert_eq!(ledger.counts_since(), Some(Epoch(2)));
    }

    #[test]
    fn restored_rows_continue_above_the_highest_sequence() {
        let row = |sequence, entries| (sequence, RowKeys::Packs(vec![(3, 2)]), entries);
        let rows = [row(7, 10), row(9, 10), row(40, 4)];
        let mut ledger = DeltaIndex::restored(rows.into_iter());
        assert_eq!((ledger.len(), ledger.sequence(4)), (3, 41));
        snapshot(&mut ledger, changes(1), 4, (1, 2));
        assert_eq!(gone(&ledger), [7]);
    }

    #[test]
    fn what_is_oldest_is_renewed_when_rows_hold_more_than_twice_what_there_is() {
        let mut ledger = DeltaIndex::default();
        for generation in 1..6 {
            snapshot(
                &mut ledger,
                changes(generation),
                generation as u32,
                (1_000, 1),
            );
            ledger.commit(generation as u32);
        }
        assert_eq!(ledger.renews(2_500), (0, 0));
        assert_eq!(ledger.renews(2_499), (1, 1_000));
        assert_eq!(ledger.renews(1_400), (3, 1_000));
        snapshot(&mut ledger, changes(6), 6, (3, 1));
        assert_eq!(ledger.renews(1_400), (3, RENEWED_LEAST));
    }
}
