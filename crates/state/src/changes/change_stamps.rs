//! Change tracking for the entries of a table.

use std::ops::Range;

use ardea_core::{Result, SnapshotWriter, StateChunk};

use crate::key_table::ChangeListener;
use crate::{SnapshotLog, SnapshotPoint};

/// The generations in which an entry was changed and written.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stamp {
    /// The generation of the last change; zero if before a restore.
    changed: u32,
    /// The generation of the last snapshot that the entry was written to.
    written: u32,
}

/// The stamps of all entries of a table by position, and the progress of the current snapshot.
///
/// Empty if no snapshots are taken. Stamps are moved along with entries that move to another table
/// in the same order.
#[derive(Clone, Default, Debug)]
pub struct ChangeStamps {
    /// The stamps of the first entries. All other entries were last changed in generation `newest`.
    /// They are in no snapshot, unless the scan of one has passed them (up to `next`). They need no
    /// memory.
    marks: Vec<Stamp>,
    newest: u32,
    entries: usize,
    /// The generation of the latest change.
    latest: u32,
    /// The number of entries changed in generation `latest`, if `latest` is the current generation.
    fresh: usize,
    /// A lower bound of the generations in which the entries last changed.
    oldest: u32,
    /// The next position to check for the snapshot of generation `next_for`, and the oldest change
    /// at the positions before.
    next: usize,
    next_for: u32,
    oldest_seen: u32,
}

/// The state of a snapshot that rewrites entries last changed a long time ago.
#[derive(Clone, Copy, Debug)]
pub struct StampScan {
    /// The snapshot.
    pub snapshot: SnapshotPoint,
    /// The number of positions that the call may still check.
    pub left: usize,
    /// Entries last changed in this generation or earlier are rewritten, at most `renews` of them.
    pub renews_to: u32,
    /// The number of entries that may still be rewritten.
    pub renews: usize,
    /// A lower bound of the last changes of the checked entries when the snapshot was taken.
    pub oldest: u32,
}

impl StampScan {
    /// Handles the change of an entry with the previous stamp `before`. Returns true if the entry
    /// belongs to the snapshot and is not written yet.
    pub fn is_overtaken(&mut self, before: Before) -> bool {
        let generation = self.snapshot.generation;
        if before.changed > generation || before.written == generation {
            return false;
        }
        self.oldest = self.oldest.min(before.changed);
        self.snapshot.holds(before.changed)
    }
}

/// The stamp of an entry before a change.
pub type Before = Stamp;

impl ChangeStamps {
    /// Returns true if there are no stamps: no snapshots are taken, or there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Resets to an empty table and retains the memory.
    pub fn clear(&mut self) {
        let mut marks = std::mem::take(&mut self.marks);
        marks.clear();
        *self = ChangeStamps {
            marks,
            ..ChangeStamps::default()
        };
    }

    /// Creates the stamps of `entries` restored entries.
    pub fn restored(entries: usize) -> Self {
        ChangeStamps {
            marks: vec![Stamp::default(); entries],
            entries,
            ..ChangeStamps::default()
        }
    }

    /// Creates the stamps of restored entries. `generations` has the generation of the last change
    /// of each.
    pub fn changed_in(generations: impl Iterator<Item = u32>) -> Self {
        let mark = |changed| Stamp {
            changed,
            written: 0,
        };
        let marks: Vec<Stamp> = generations.map(mark).collect();
        let changed = || marks.iter().map(|mark| mark.changed);
        ChangeStamps {
            oldest: changed().min().unwrap_or_default(),
            latest: changed().max().unwrap_or_default(),
            entries: marks.len(),
            marks,
            ..ChangeStamps::default()
        }
    }

    /// Adds a stamp for a new entry at the end.
    #[inline]
    pub fn push(&mut self, log: &SnapshotLog) {
        self.push_many(1, log);
    }

    /// Adds stamps for new entries at the end.
    #[inline]
    fn push_many(&mut self, entries: usize, log: &SnapshotLog) {
        if entries == 0 {
            return;
        }
        if self.newest != log.generation() || self.entries == 0 {
            self.begin_newest(log);
        }
        self.entries += entries;
        self.count_fresh(entries, log);
    }

    /// Sets the current generation for new entries.
    #[cold]
    fn begin_newest(&mut self, log: &SnapshotLog) {
        if self.entries == 0 {
            self.oldest = log.generation();
        }
        self.marks();
        self.newest = log.generation();
    }

    /// Returns the stamps of all entries.
    fn marks(&mut self) -> &mut [Stamp] {
        // A new entry belongs to no earlier snapshot, as it was changed after all of them.
        let new = Stamp {
            changed: self.newest,
            written: 0,
        };
        if self.marks.len() < self.entries {
            // The entry may already be written to the current snapshot. For checked entries outside
            // the snapshot, this makes no difference.
            let looked_at = self.marks.len()..self.next.min(self.entries);
            let written = Stamp {
                written: self.next_for,
                ..new
            };
            self.marks.extend(looked_at.map(|_| written));
            self.marks.resize(self.entries, new);
        }
        &mut self.marks
    }

    /// Returns true if every entry has changed in the current generation, so that no further change
    /// needs tracking.
    #[inline]
    pub fn are_fresh(&self, log: &SnapshotLog) -> bool {
        self.fresh == self.entries && (self.latest == log.generation() || self.entries == 0)
    }

    /// Returns true if all entries were changed after this snapshot was taken, so that it contains
    /// none of them.
    pub fn are_behind(&self, snapshot: SnapshotPoint) -> bool {
        self.entries == 0 || self.oldest > snapshot.generation
    }

    /// Counts further entries changed in the current generation.
    #[inline]
    fn count_fresh(&mut self, entries: usize, log: &SnapshotLog) {
        if self.latest != log.generation() {
            (self.latest, self.fresh) = (log.generation(), 0);
        }
        self.fresh += entries;
    }

    /// Records that the entry at `place` is about to change. `write` appends its present contents.
    #[inline]
    pub fn touch(
        &mut self,
        place: usize,
        log: &mut SnapshotLog,
        write: impl FnOnce(&mut StateChunk) -> Result<()>,
    ) {
        if self.is_news(place, log) {
            let before = self.change(place, log);
            if let Some(snapshot) = log.writing()
                && snapshot.holds(before.changed)
                && before.written != snapshot.generation
            {
                log.put_aside(write);
            }
        }
    }

    /// Returns true if a change of the entry at `place` would be its first in the current
    /// generation.
    #[inline]
    pub fn is_news(&self, place: usize, log: &SnapshotLog) -> bool {
        let changed = match self.marks.get(place) {
            Some(mark) => mark.changed,
            None => self.newest,
        };
        changed != log.generation() && place < self.entries
    }

    /// Records a change of the entry at `place`, and returns its previous stamp.
    #[cold]
    #[inline(never)]
    pub fn change(&mut self, place: usize, log: &SnapshotLog) -> Before {
        let mark = &mut self.marks()[place];
        let before = *mark;
        mark.changed = log.generation();
        self.count_fresh(1, log);
        before
    }

    /// Writes entries that belong to the snapshot, and checks at most `left` positions. Returns
    /// true if all are written.
    pub fn write(
        &mut self,
        snapshot: SnapshotPoint,
        left: &mut usize,
        writer: &mut SnapshotWriter<'_>,
        write: impl FnMut(&mut StateChunk, usize) -> Result<()>,
    ) -> Result<bool> {
        if !snapshot.may_hold(self.latest) {
            return Ok(true);
        }
        self.write_if(
            snapshot,
            left,
            writer,
            |mark| snapshot.holds(mark.changed),
            write,
        )
    }

    /// Works like [`write`](Self::write), for all entries.
    pub fn write_all(
        &mut self,
        snapshot: SnapshotPoint,
        left: &mut usize,
        writer: &mut SnapshotWriter<'_>,
        write: impl FnMut(&mut StateChunk, usize) -> Result<()>,
    ) -> Result<bool> {
        self.write_if(snapshot, left, writer, |_| true, write)
    }

    fn write_if(
        &mut self,
        snapshot: SnapshotPoint,
        left: &mut usize,
        writer: &mut SnapshotWriter<'_>,
        holds: impl Fn(&Stamp) -> bool,
        mut write: impl FnMut(&mut StateChunk, usize) -> Result<()>,
    ) -> Result<bool> {
        if self.next_for != snapshot.generation {
            (self.next, self.next_for) = (0, snapshot.generation);
        }
        self.marks();
        while let Some(mark) = self.marks.get_mut(self.next) {
            if *left == 0 || !writer.has_room() {
                return Ok(false);
            }
            *left -= 1;
            if holds(mark) && mark.written != snapshot.generation {
                mark.written = snapshot.generation;
                write(writer.chunk(), self.next)?;
            }
            self.next += 1;
        }
        Ok(true)
    }

    /// Scans the entries for a snapshot. `write` receives a contiguous range of at most `most`
    /// positions that belong to it. It returns the number of entries written from the start of the
    /// range, and whether there is room for more. Returns true if all entries have been checked.
    pub fn sweep(
        &mut self,
        sweep: &mut StampScan,
        most: usize,
        mut write: impl FnMut(Range<usize>) -> Result<(usize, bool)>,
    ) -> Result<bool> {
        let snapshot = sweep.snapshot;
        if self.are_behind(snapshot) {
            return Ok(true);
        }
        if !snapshot.may_hold(self.latest) && self.oldest > sweep.renews_to {
            sweep.oldest = sweep.oldest.min(self.oldest);
            return Ok(true);
        }
        if self.next_for != snapshot.generation {
            (self.next, self.next_for, self.oldest_seen) = (0, snapshot.generation, u32::MAX);
        }
        while self.next < self.entries {
            if sweep.left == 0 {
                return Ok(false);
            }
            let (alike, belong) = self.take_alike(sweep, most.min(sweep.left));
            let (looked_at, has_room) = match belong {
                true => write(self.next..self.next + alike)?,
                false => (alike, true),
            };
            let after = self.next + looked_at;
            if belong && self.next < self.marks.len() {
                let marks = &mut self.marks[self.next..after];
                marks
                    .iter_mut()
                    .for_each(|it| it.written = snapshot.generation);
            }
            (self.next, sweep.left) = (after, sweep.left - looked_at);
            if !has_room {
                return Ok(false);
            }
        }
        // Entries changed since then are newer than the snapshot.
        self.oldest = self.oldest_seen.min(snapshot.generation + 1);
        sweep.oldest = sweep.oldest.min(self.oldest_seen);
        Ok(true)
    }

    /// Returns how many of the next entries (at most `most`) are treated alike, and whether they
    /// must be written. Entries to rewrite belong to the snapshot from then on; those not written
    /// in this call come first in the next.
    fn take_alike(&mut self, sweep: &mut StampScan, most: usize) -> (usize, bool) {
        let snapshot = sweep.snapshot;
        if self.next >= self.marks.len() {
            // All following entries are as new as the newest, and in no snapshot.
            let (is_open, belong) = (
                self.newest <= snapshot.generation,
                snapshot.holds(self.newest),
            );
            if !is_open || belong || self.newest > sweep.renews_to || sweep.renews == 0 {
                if is_open {
                    self.oldest_seen = self.oldest_seen.min(self.newest);
                }
                return (most.min(self.entries - self.next), belong);
            }
            self.marks();
        }
        let (mut count, mut all_belong) = (0, false);
        for mark in self.marks[self.next..].iter_mut().take(most) {
            let is_open =
                mark.changed <= snapshot.generation && mark.written != snapshot.generation;
            let is_renewed = is_open
                && !snapshot.holds(mark.changed)
                && mark.changed <= sweep.renews_to
                && sweep.renews > 0;
            let belongs = is_renewed || (is_open && snapshot.holds(mark.changed));
            if count == 0 {
                all_belong = belongs;
            } else if belongs != all_belong {
                break;
            }
            if is_renewed {
                sweep.renews -= 1;
                mark.changed = snapshot.generation;
                self.latest = self.latest.max(snapshot.generation);
            }
            if is_open {
                self.oldest_seen = self.oldest_seen.min(mark.changed);
            }
            count += 1;
        }
        (count, all_belong)
    }

    /// Reorders the entries: the entry at each position comes from the given position of `places`.
    pub fn reorder(&mut self, places: impl Iterator<Item = u32>) {
        let marks = self.marks();
        let reordered: Vec<Stamp> = places.map(|place| marks[place as usize]).collect();
        (self.entries, self.marks) = (reordered.len(), reordered);
        let is_fresh = |mark: &&Stamp| mark.changed == self.latest;
        self.fresh = self.marks.iter().filter(is_fresh).count();
        self.next = 0;
    }
}

/// A listener that tracks the changes of a table. `write` appends an entry, given its key and
/// value.
pub struct TrackChanges<'a, W> {
    /// The stamps of the table.
    pub stamps: &'a mut ChangeStamps,
    /// The snapshots of the processor.
    pub log: &'a mut SnapshotLog,
    /// Appends an entry.
    pub write: W,
}

impl<K, V, W> ChangeListener<K, V> for TrackChanges<'_, W>
where
    W: FnMut(&mut StateChunk, &K, &V) -> Result<()>,
{
    #[inline]
    fn changes(&mut self, slot: u32, key: &K, value: &V) {
        let write = &mut self.write;
        self.stamps
            .touch(slot as usize, self.log, |chunk| write(chunk, key, value));
    }

    fn inserted(&mut self, _: u32) {
        self.stamps.push(self.log);
    }
}

/// A listener for a table whose entries [have all changed](ChangeStamps::are_fresh) in the current
/// generation. This listener only counts new entries, so a record costs no more than without
/// snapshots. The stamps lag behind the table until the listener is dropped.
pub struct TrackInserts<'a> {
    stamps: &'a mut ChangeStamps,
    log: &'a SnapshotLog,
    inserted: usize,
}

impl<'a> TrackInserts<'a> {
    /// Creates a listener.
    pub fn new(stamps: &'a mut ChangeStamps, log: &'a SnapshotLog) -> Self {
        TrackInserts {
            stamps,
            log,
            inserted: 0,
        }
    }
}

impl<K, V> ChangeListener<K, V> for TrackInserts<'_> {
    #[inline]
    fn changes(&mut self, _: u32, _: &K, _: &V) {}

    #[inline]
    fn inserted(&mut self, _: u32) {
        self.inserted += 1;
    }
}

/// Also runs after a panic of user code in the middle of a batch, for the entries inserted before
/// the panic.
impl Drop for TrackInserts<'_> {
    fn drop(&mut self) {
        self.stamps.push_many(self.inserted, self.log);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Epoch, SnapshotRequest};
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Insert(usize),
        Change(usize),
        Snapshot,
        StampScan(usize, (u32, usize), usize),
        Reverse,
        Clear,
    }

    fn sweep_of(
        snapshot: SnapshotPoint,
        left: usize,
        (renews_to, renews): (u32, usize),
    ) -> StampScan {
        StampScan {
            snapshot,
            left,
            renews_to,
            renews,
            oldest: u32::MAX,
        }
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => Just(Step::Push),
            2 => (0usize..4).prop_map(Step::Insert),
            16 => any::<usize>().prop_map(Step::Change),
            3 => Just(Step::Snapshot),
            3 => (0usize..50, (0u32..9, 0usize..9), 1usize..9)
                .prop_map(|(left, renews, writes)| Step::StampScan(left, renews, writes)),
            1 => Just(Step::Reverse),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn what_is_fresh_or_behind_a_snapshot_is_so_entry_by_entry(steps in prop::collection::vec(step(), 0..200)) {
            let (mut stamps, mut log, mut epoch) = (ChangeStamps::default(), SnapshotLog::default(), 0);
            // The same steps with explicit stamps of all entries from the start.
            let mut marked = ChangeStamps::default();
            for step in steps {
                marked.marks();
                let entries = stamps.entries;
                match step {
                    Step::Push => {
                        stamps.push(&log);
                        marked.push(&log);
                    }
                    Step::Insert(keys) if stamps.are_fresh(&log) => {
                        for both in [&mut stamps, &mut marked] {
                            let mut fresh = TrackInserts::new(both, &log);
                            (0..keys).for_each(|_| ChangeListener::<u64, u64>::inserted(&mut fresh, 0));
                        }
                        prop_assert_eq!(stamps.entries, entries + keys);
                    }
                    Step::Insert(_) => {}
                    Step::Change(at) if entries > 0 && stamps.is_news(at % entries, &log) => {
                        let before = stamps.change(at % entries, &log);
                        let known = marked.change(at % entries, &log);
                        if let Some(snapshot) = log.writing() {
                            let is_overtaken = |before| sweep_of(snapshot, 0, (0, 0)).is_overtaken(before);
                            prop_assert_eq!(is_overtaken(before), is_overtaken(known));
                        }
                    }
                    Step::Change(_) => {}
                    Step::Snapshot => {
                        epoch += 1;
                        log.take_snapshot(SnapshotRequest::full(Epoch(epoch)));
                    }
                    Step::StampScan(left, (renews_to, renews), writes) => {
                        let Some(snapshot) = log.writing() else { continue };
                        let swept = [&mut stamps, &mut marked].map(|it| {
                            let (mut sweep, mut swept) = (sweep_of(snapshot, left, (renews_to, renews)), Vec::new());
                            let is_done = it.sweep(&mut sweep, 7, |places| {
                                assert!((1..8).contains(&places.len()));
                                let written = places.len().min(writes);
                                swept.extend(places.take(written));
                                Ok((written, true))
                            });
                            (swept, is_done.unwrap(), sweep.left, sweep.renews, sweep.oldest)
                        });
                        prop_assert_eq!(&swept[0], &swept[1]);
                    }
                    Step::Reverse => {
                        stamps.reorder((0..entries as u32).rev());
                        marked.reorder((0..entries as u32).rev());
                    }
                    Step::Clear => {
                        stamps.clear();
                        marked.clear();
                    }
                }
                // Entries without explicit stamps are left unchanged by these checks.
                let marks = stamps.clone().marks().to_vec();
                for (at, mark) in marks.iter().enumerate() {
                    prop_assert_eq!(stamps.is_news(at, &log), mark.changed != log.generation());
                }
                let all_fresh = marks.iter().all(|mark| mark.changed == log.generation());
                prop_assert_eq!(stamps.are_fresh(&log), all_fresh);
                if let Some(snapshot) = log.writing() && stamps.are_behind(snapshot) {
                    prop_assert!(marks.iter().all(|mark| mark.changed > snapshot.generation));
                }
            }
        }
    }
}
