//! Which packs snapshots may hold, which of them are needless, and when old ones are to be written anew.
//!
//! The packs of a cut are a *row*. What each entry of a slice was changed in last is known; the rows of cuts that are older than the
//! oldest of these changes hold nothing that counts, and are removed, from the oldest on. Of an entry that has not changed since `c` the
//! row that counts is that of the first cut that was heard to be committed and was taken in `c` or later: each increment holds all changes
//! since the last of which that was heard. So rows of cuts of which nothing was heard, while something was of later ones, hold
//! nothing that counts either, with one exception: behind a full cut there is nothing else.
//!
//! Where little changes of much, rows hold less and less that counts, and no change would ever let go of the oldest. So when rows hold
//! more than twice as many entries as there are, cuts write anew what has been changed last in the oldest rows, about as much in a cut
//! as has changed. Then no snapshot holds more than about four times what there is.

use std::collections::VecDeque;

use ardea_core::{Cut, Epoch, PartitionId};

use super::packs::PackCounts;

/// Besides as many as have changed, a cut writes so many entries anew, where any are to be.
const RENEWED_LEAST: usize = 256;

/// The rows that snapshots may hold, the oldest first.
#[derive(Default)]
pub(crate) struct PackLedger {
    /// The sequence of a generation's row is the generation and this.
    before: u64,
    rows: VecDeque<Row>,
    /// What rows before this generation hold does not count.
    floor: u32,
    /// How many entries had changed that the last increment held.
    changed: usize,
    /// Up to this generation rows were written in an earlier life, whose epochs say nothing here.
    earlier: u32,
}

/// The packs of one cut.
pub(crate) struct Row {
    /// The generation that ended with it.
    generation: u32,
    sequence: u64,
    keys: RowKeys,
    /// How many entries of slices they hold.
    entries: u64,
    /// Of which epoch.
    epoch: Epoch,
    is_full: bool,
    is_last: bool,
    fate: Fate,
    /// The first generation whose cut said that it is gone.
    gone_in: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It is being written.
    Unwritten,
    /// Nothing has been heard of it.
    Undecided,
    /// It has been committed.
    Committed,
    /// It may be there, and later ones hold all that it does.
    Needless,
}

/// The keys of a row's entries.
pub(crate) enum RowKeys {
    /// How many packs partitions have.
    Packs(PackCounts),
    /// Entries of one key each, from before there were packs.
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

/// What there is to say of rows that are gone.
pub(crate) enum GoneEntry<'a> {
    Packs {
        sequence: u64,
        partition: u16,
        count: u32,
    },
    Entry(Option<PartitionId>, &'a [u8]),
}

impl PackLedger {
    /// Goes on with rows that have come back, in order of their sequences: each with its sequence, its keys and how many entries it
    /// holds. Their generations are 1, 2 and so on.
    pub(crate) fn restored(rows: impl Iterator<Item = (u64, RowKeys, u64)>) -> Self {
        let row = |(generation, (sequence, keys, entries)): (u32, _)| Row {
            generation,
            sequence,
            keys,
            entries,
            epoch: Epoch(0),
            is_full: false,
            is_last: false,
            fate: Fate::Committed,
            gone_in: None,
        };
        let rows: VecDeque<Row> = (1..).zip(rows).map(row).collect();
        let highest = rows.back().map_or(0, |row| row.sequence);
        PackLedger {
            before: highest.saturating_sub(rows.len() as u64),
            earlier: rows.len() as u32,
            rows,
            ..PackLedger::default()
        }
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The sequence of the row of this generation.
    pub(crate) fn sequence(&self, generation: u32) -> u64 {
        self.before.saturating_add(generation.into())
    }

    /// A cut is taken, which ends this generation. The one before, if it is not written yet, never will be.
    pub(crate) fn take_cut(&mut self, cut: Cut, generation: u32) {
        self.void();
        self.rows.push_back(Row {
            generation,
            sequence: self.sequence(generation),
            keys: RowKeys::Packs(Vec::new()),
            entries: 0,
            epoch: cut.epoch,
            is_full: cut.is_full(),
            is_last: cut.is_last,
            fate: Fate::Unwritten,
            gone_in: None,
        });
    }

    /// The cut that is being written is void.
    pub(crate) fn void(&mut self) {
        self.rows.retain(|row| row.fate != Fate::Unwritten);
    }

    /// Up to which generation what has not changed since is written anew, and how much of it, by an increment that is taken now. So much
    /// is `alive`.
    pub(crate) fn renews(&self, alive: usize) -> (u32, usize) {
        let counts = |row: &&Row| row.fate == Fate::Committed && row.gone_in.is_none();
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

    /// All packs of the increment of this generation are written, and no entry that it found had been changed last before `oldest`: which
    /// rows are gone is to be said next.
    pub(crate) fn raise(&mut self, generation: u32, oldest: u32) {
        self.floor = self.floor.max(oldest.min(generation));
        for row in &mut self.rows {
            let is_needless = row.generation < self.floor || row.fate == Fate::Needless;
            if is_needless && row.generation < generation {
                row.gone_in.get_or_insert(generation);
            }
        }
    }

    /// What there is to say of rows that are gone, from the entry at this place of the row of this generation on; with the places behind.
    pub(crate) fn gone_from(
        &self,
        (generation, place): (u32, usize),
    ) -> Option<((u32, usize), GoneEntry<'_>)> {
        let first = self.rows.partition_point(|row| row.generation < generation);
        let gone = self.rows.range(first..).filter(|row| row.gone_in.is_some());
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
                        .map(|(partition, count)| GoneEntry::Packs {
                            sequence: row.sequence,
                            partition: *partition,
                            count: *count,
                        })
                }
                RowKeys::Entries(keys) => keys
                    .get(place)
                    .map(|(partition, key)| GoneEntry::Entry(*partition, key)),
            };
            if let Some(entry) = entry {
                return Some(((row.generation, place + 1), entry));
            }
        }
        None
    }

    /// Before which epoch nothing was written that counts beside the cut that is being written, which says what is gone; none as long as something of before
    /// this life counts.
    pub(crate) fn counts_since(&self) -> Option<Epoch> {
        let writing = self.rows.back()?;
        if writing.is_full {
            return Some(writing.epoch);
        }
        let mut counting = self.rows.iter().filter(|row| row.gone_in.is_none());
        let oldest = counting.next()?;
        (oldest.generation > self.earlier).then_some(oldest.epoch)
    }

    /// Another instance goes on with it, in another life.
    pub(crate) fn taken_over(&mut self) {
        self.earlier = self.rows.back().map_or(self.earlier, |row| row.generation);
    }

    /// The cut is written: its packs, how many entries of slices they hold, and how many of these had changed.
    pub(crate) fn finish(&mut self, packs: PackCounts, entries: u64, changed: usize) {
        if let Some(row) = self.rows.back_mut()
            && row.fate == Fate::Unwritten
        {
            if !row.is_full {
                self.changed = changed;
            }
            (row.keys, row.entries) = (RowKeys::Packs(packs), entries);
            row.fate = Fate::Undecided;
        }
    }

    /// An epoch is given up: no snapshot holds its row. A last cut holds for others too.
    pub(crate) fn give_up(&mut self, epoch: Epoch) {
        self.rows
            .retain(|row| row.fate != Fate::Undecided || row.epoch != epoch || row.is_last);
    }

    /// The cut that ended this generation has been heard to be committed, and with it all changes up to there.
    pub(crate) fn commit(&mut self, base: u32) {
        let committed = self.rows.iter_mut().find(|row| row.generation == base);
        let Some(committed) = committed.filter(|row| row.fate == Fate::Undecided) else {
            return;
        };
        committed.fate = Fate::Committed;
        let is_full = committed.is_full;
        self.rows.retain_mut(|row| {
            if row.generation >= base {
                return true;
            }
            match row.fate {
                Fate::Undecided if row.is_full => row.fate = Fate::Committed,
                Fate::Undecided => row.fate = Fate::Needless,
                _ => {}
            }
            !is_full && row.gone_in.is_none_or(|gone_in| gone_in > base) && row.keys.len() > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a cut of the next generation and writes it: one pack with so many entries. No entry was changed last before `oldest`.
    fn cut(ledger: &mut PackLedger, cut: Cut, generation: u32, (entries, oldest): (u64, u32)) {
        ledger.take_cut(cut, generation);
        if !cut.is_full() {
            ledger.raise(generation, oldest);
        }
        ledger.finish(vec![(0, 1)], entries, entries as usize);
    }

    fn changes(epoch: u64) -> Cut {
        Cut::changes(Epoch(epoch), Epoch(0))
    }

    /// The sequences of rows of which is said that they are gone.
    fn gone(ledger: &PackLedger) -> Vec<u64> {
        let (mut at, mut gone) = ((0, 0), Vec::new());
        while let Some((next, GoneEntry::Packs { sequence, .. })) = ledger.gone_from(at) {
            gone.push(sequence);
            at = next;
        }
        gone
    }

    #[test]
    fn rows_go_from_the_oldest_on_when_nothing_has_stayed_as_it_was_then() {
        let mut ledger = PackLedger::default();
        cut(&mut ledger, Cut::full(Epoch(1)), 1, (5, 1));
        ledger.commit(1);
        cut(&mut ledger, changes(2), 2, (2, 1));
        ledger.commit(2);
        assert!(gone(&ledger).is_empty());
        cut(&mut ledger, changes(3), 3, (4, 2));
        assert_eq!(gone(&ledger), [1]);
        // It is said again until a cut that says so is heard to be committed.
        ledger.give_up(Epoch(3));
        cut(&mut ledger, changes(4), 4, (4, 2));
        assert_eq!(gone(&ledger), [1]);
        ledger.commit(4);
        assert!(gone(&ledger).is_empty());
        assert_eq!(ledger.len(), 2);
    }

    #[test]
    fn rows_that_nothing_was_heard_of_are_needless_behind_one_that_was_committed() {
        let mut ledger = PackLedger::default();
        cut(&mut ledger, Cut::full(Epoch(1)), 1, (5, 1));
        ledger.commit(1);
        cut(&mut ledger, changes(2), 2, (2, 1));
        cut(&mut ledger, changes(3), 3, (2, 1));
        assert!(gone(&ledger).is_empty());
        ledger.commit(3);
        cut(&mut ledger, changes(4), 4, (2, 1));
        assert_eq!(gone(&ledger), [2]);
    }

    #[test]
    fn a_full_cut_that_nothing_was_heard_of_may_be_all_there_is() {
        let mut ledger = PackLedger::default();
        cut(&mut ledger, Cut::full(Epoch(1)), 1, (5, 1));
        ledger.commit(1);
        cut(&mut ledger, Cut::full(Epoch(2)), 2, (5, 1));
        cut(&mut ledger, changes(3), 3, (2, 1));
        ledger.commit(3);
        cut(&mut ledger, changes(4), 4, (2, 1));
        assert!(gone(&ledger).is_empty());
        cut(&mut ledger, changes(5), 5, (2, 3));
        assert_eq!(gone(&ledger), [1, 2]);
    }

    #[test]
    fn behind_a_full_cut_that_is_committed_there_is_nothing_else() {
        let mut ledger = PackLedger::default();
        for generation in 1..4 {
            cut(&mut ledger, changes(generation), generation as u32, (5, 1));
            ledger.commit(generation as u32);
        }
        cut(&mut ledger, Cut::full(Epoch(4)), 4, (5, 1));
        assert_eq!(ledger.len(), 4);
        ledger.commit(4);
        assert_eq!(ledger.len(), 1);
    }

    #[test]
    fn a_cut_that_is_not_written_to_its_end_leaves_no_row() {
        let mut ledger = PackLedger::default();
        ledger.take_cut(Cut::full(Epoch(1)), 1);
        ledger.take_cut(Cut::full(Epoch(2)), 2);
        assert_eq!(ledger.len(), 1);
        ledger.void();
        assert_eq!(ledger.len(), 0);
    }

    #[test]
    fn what_is_older_than_the_oldest_row_that_is_not_gone_does_not_count() {
        let mut ledger = PackLedger::default();
        let mut since = Vec::new();
        for generation in 1..6_u32 {
            let epoch = u64::from(generation) + 10;
            let taken = if generation == 1 {
                Cut::full(Epoch(epoch))
            } else {
                changes(epoch)
            };
            ledger.take_cut(taken, generation);
            if generation > 1 {
                // All was changed in the two generations before.
                ledger.raise(generation, generation.saturating_sub(2));
            }
            since.extend(ledger.counts_since().map(|epoch| epoch.0));
            ledger.finish(vec![(0, 1)], 1, 1);
            ledger.commit(generation);
        }
        assert_eq!(since, [11, 11, 11, 12, 13]);
        ledger.take_cut(Cut::full(Epoch(16)), 6);
        assert_eq!(ledger.counts_since(), Some(Epoch(16)));
    }

    #[test]
    fn nothing_is_said_of_epochs_as_long_as_something_of_an_earlier_life_counts() {
        let row = |sequence| (sequence, RowKeys::Packs(vec![(3, 2)]), 1);
        let mut ledger = PackLedger::restored([row(1), row(2)].into_iter());
        ledger.take_cut(changes(7), 3);
        assert_eq!(ledger.counts_since(), None);
        ledger.raise(3, 2);
        assert_eq!(ledger.counts_since(), None);
        ledger.raise(3, 3);
        assert_eq!(ledger.counts_since(), Some(Epoch(7)));
        ledger.finish(vec![(0, 1)], 1, 1);
        ledger.taken_over();
        ledger.take_cut(changes(2), 4);
        assert_eq!(ledger.counts_since(), None);
        ledger.raise(4, 4);
        assert_eq!(ledger.counts_since(), Some(Epoch(2)));
    }

    #[test]
    fn what_comes_back_is_gone_on_from_above_the_highest_sequence() {
        let row = |sequence, entries| (sequence, RowKeys::Packs(vec![(3, 2)]), entries);
        let rows = [row(7, 10), row(9, 10), row(40, 4)];
        let mut ledger = PackLedger::restored(rows.into_iter());
        assert_eq!((ledger.len(), ledger.sequence(4)), (3, 41));
        cut(&mut ledger, changes(1), 4, (1, 2));
        assert_eq!(gone(&ledger), [7]);
    }

    #[test]
    fn what_is_oldest_is_renewed_when_rows_hold_more_than_twice_what_there_is() {
        let mut ledger = PackLedger::default();
        for generation in 1..6 {
            cut(
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
        cut(&mut ledger, changes(6), 6, (3, 1));
        assert_eq!(ledger.renews(1_400), (3, RENEWED_LEAST));
    }
}
