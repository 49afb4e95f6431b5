//! What has changed in a table, entry by entry.

use std::ops::Range;

use ardea_core::{CutWriter, Result, StateChunk};

use crate::keyed::{CutAt, CutLog};
use crate::keyed_table::Watch;

/// When an entry was changed, and written.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stamp {
    /// The generation in which it was changed last; zero if that was in another life.
    changed: u32,
    /// The generation whose cut it was written to last.
    written: u32,
}

/// The stamps of all entries of one table, by their places in it; and how far the table is written.
///
/// Empty where no cuts are taken. They stay with the entries when these move to another table in the same order.
#[derive(Clone, Default, Debug)]
pub(crate) struct Stamps {
    /// Of the first entries. Those behind them were changed last in generation `newest`, and are in no cut but one that has been written up to `next`: as long as that is so
    /// of all that come, a new entry costs no memory.
    marks: Vec<Stamp>,
    newest: u32,
    entries: usize,
    /// The latest change.
    latest: u32,
    /// How many entries were changed last in that generation, as long as it is the one under way.
    fresh: usize,
    /// No entry was changed last before this.
    oldest: u32,
    /// The next place to look at, for the cut of this generation, and the oldest change among those before it.
    next: usize,
    next_for: u32,
    oldest_seen: u32,
}

/// How a cut is written of which some entries have last been changed so long ago that they are written anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    pub(crate) cut: CutAt,
    /// How many places the call may still look at.
    pub(crate) left: usize,
    /// Those changed last up to this generation are written anew, so many of them.
    pub(crate) renews_to: u32,
    pub(crate) renews: usize,
    /// When the cut was taken, no entry of what was swept had been changed last before this.
    pub(crate) oldest: u32,
}

impl Sweep {
    /// An entry is about to change that had been changed last in `changed`; whether that belongs to the cut, and is not in it yet.
    pub(crate) fn is_overtaken(&mut self, before: Before) -> bool {
        let generation = self.cut.generation;
        if before.changed > generation || before.written == generation {
            return false;
        }
        self.oldest = self.oldest.min(before.changed);
        self.cut.holds(before.changed)
    }
}

/// What was known of an entry before it changed.
pub(crate) type Before = Stamp;

impl Stamps {
    /// Whether there are none, because no cuts are taken or there are no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Makes them those of an empty table, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        let mut marks = std::mem::take(&mut self.marks);
        marks.clear();
        *self = Stamps {
            marks,
            ..Stamps::default()
        };
    }

    /// Of entries that come back from another life, so many.
    pub(crate) fn restored(entries: usize) -> Self {
        Stamps {
            marks: vec![Stamp::default(); entries],
            entries,
            ..Stamps::default()
        }
    }

    /// Of entries that come back, and were changed last in these generations.
    pub(crate) fn changed_in(generations: impl Iterator<Item = u32>) -> Self {
        let mark = |changed| Stamp {
            changed,
            written: 0,
        };
        let marks: Vec<Stamp> = generations.map(mark).collect();
        let changed = || marks.iter().map(|mark| mark.changed);
        Stamps {
            oldest: changed().min().unwrap_or_default(),
            latest: changed().max().unwrap_or_default(),
            entries: marks.len(),
            marks,
            ..Stamps::default()
        }
    }

    /// An entry is new, at the next place.
    #[inline]
    pub(crate) fn push(&mut self, log: &CutLog) {
        self.push_many(1, log);
    }

    /// So many are, at the next places.
    #[inline]
    fn push_many(&mut self, entries: usize, log: &CutLog) {
        if entries == 0 {
            return;
        }
        if self.newest != log.generation() || self.entries == 0 {
            self.begin_newest(log);
        }
        self.entries += entries;
        self.count_fresh(entries, log);
    }

    /// Those that come from now on are changed in the generation under way.
    #[cold]
    fn begin_newest(&mut self, log: &CutLog) {
        if self.entries == 0 {
            self.oldest = log.generation();
        }
        self.marks();
        self.newest = log.generation();
    }

    /// The stamps of all entries.
    fn marks(&mut self) -> &mut [Stamp] {
        // One that is new belongs to no cut that was taken before, as it has changed after it.
        let new = Stamp {
            changed: self.newest,
            written: 0,
        };
        if self.marks.len() < self.entries {
            // But it may be in the one that is being written, as far as that has come; to those that were looked at and don't belong to it this makes no difference.
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

    /// Whether every entry has changed in the generation under way, so that no change of one is news.
    #[inline]
    pub(crate) fn are_fresh(&self, log: &CutLog) -> bool {
        self.fresh == self.entries && (self.latest == log.generation() || self.entries == 0)
    }

    /// Whether all entries have been changed after this cut was taken, so that it holds none of them.
    pub(crate) fn are_behind(&self, cut: CutAt) -> bool {
        self.entries == 0 || self.oldest > cut.generation
    }

    /// So many entries more have changed in the generation under way.
    #[inline]
    fn count_fresh(&mut self, entries: usize, log: &CutLog) {
        if self.latest != log.generation() {
            (self.latest, self.fresh) = (log.generation(), 0);
        }
        self.fresh += entries;
    }

    /// The entry at `place` is about to change. `write` appends it as it is now.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        place: usize,
        log: &mut CutLog,
        write: impl FnOnce(&mut StateChunk) -> Result<()>,
    ) {
        if self.is_news(place, log) {
            let before = self.change(place, log);
            if let Some(cut) = log.writing()
                && cut.holds(before.changed)
                && before.written != cut.generation
            {
                log.put_aside(write);
            }
        }
    }

    /// Whether a change of the entry at `place` would be its first in the generation under way.
    #[inline]
    pub(crate) fn is_news(&self, place: usize, log: &CutLog) -> bool {
        let changed = match self.marks.get(place) {
            Some(mark) => mark.changed,
            None => self.newest,
        };
        changed != log.generation() && place < self.entries
    }

    /// The entry at `place` is about to change; what was known of it.
    #[cold]
    #[inline(never)]
    pub(crate) fn change(&mut self, place: usize, log: &CutLog) -> Before {
        let mark = &mut self.marks()[place];
        let before = *mark;
        mark.changed = log.generation();
        self.count_fresh(1, log);
        before
    }

    /// Writes on at the entries that belong to the cut, at most `left` places; whether all are written.
    pub(crate) fn write(
        &mut self,
        cut: CutAt,
        left: &mut usize,
        writer: &mut CutWriter<'_>,
        write: impl FnMut(&mut StateChunk, usize) -> Result<()>,
    ) -> Result<bool> {
        if !cut.may_hold(self.latest) {
            return Ok(true);
        }
        self.write_if(cut, left, writer, |mark| cut.holds(mark.changed), write)
    }

    /// As [`write`](Self::write), for all entries.
    pub(crate) fn write_all(
        &mut self,
        cut: CutAt,
        left: &mut usize,
        writer: &mut CutWriter<'_>,
        write: impl FnMut(&mut StateChunk, usize) -> Result<()>,
    ) -> Result<bool> {
        self.write_if(cut, left, writer, |_| true, write)
    }

    fn write_if(
        &mut self,
        cut: CutAt,
        left: &mut usize,
        writer: &mut CutWriter<'_>,
        holds: impl Fn(&Stamp) -> bool,
        mut write: impl FnMut(&mut StateChunk, usize) -> Result<()>,
    ) -> Result<bool> {
        if self.next_for != cut.generation {
            (self.next, self.next_for) = (0, cut.generation);
        }
        self.marks();
        while let Some(mark) = self.marks.get_mut(self.next) {
            if *left == 0 || !writer.has_room() {
                return Ok(false);
            }
            *left -= 1;
            if holds(mark) && mark.written != cut.generation {
                mark.written = cut.generation;
                write(writer.chunk(), self.next)?;
            }
            self.next += 1;
        }
        Ok(true)
    }

    /// Goes on through the entries for a cut: `write` gets the places of some that belong to it and follow each other, at most `most`, and says how many of them, from the
    /// first on, it has written, and whether there is room for more. Whether all have been looked at.
    pub(crate) fn sweep(
        &mut self,
        sweep: &mut Sweep,
        most: usize,
        mut write: impl FnMut(Range<usize>) -> Result<(usize, bool)>,
    ) -> Result<bool> {
        let cut = sweep.cut;
        if self.are_behind(cut) {
            return Ok(true);
        }
        if !cut.may_hold(self.latest) && self.oldest > sweep.renews_to {
            sweep.oldest = sweep.oldest.min(self.oldest);
            return Ok(true);
        }
        if self.next_for != cut.generation {
            (self.next, self.next_for, self.oldest_seen) = (0, cut.generation, u32::MAX);
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
                marks.iter_mut().for_each(|it| it.written = cut.generation);
            }
            (self.next, sweep.left) = (after, sweep.left - looked_at);
            if !has_room {
                return Ok(false);
            }
        }
        // What has changed since is younger than the cut.
        self.oldest = self.oldest_seen.min(cut.generation + 1);
        sweep.oldest = sweep.oldest.min(self.oldest_seen);
        Ok(true)
    }

    /// How many entries from the next on, at most `most`, are alike for a cut, and whether they belong to it and are to be written. Those that are renewed belong to it from now on:
    /// they come next if they are not written in this call.
    fn take_alike(&mut self, sweep: &mut Sweep, most: usize) -> (usize, bool) {
        let cut = sweep.cut;
        if self.next >= self.marks.len() {
            // All that follow are as the newest, and in no cut.
            let (is_open, belong) = (self.newest <= cut.generation, cut.holds(self.newest));
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
            let is_open = mark.changed <= cut.generation && mark.written != cut.generation;
            let is_renewed = is_open
                && !cut.holds(mark.changed)
                && mark.changed <= sweep.renews_to
                && sweep.renews > 0;
            let belongs = is_renewed || (is_open && cut.holds(mark.changed));
            if count == 0 {
                all_belong = belongs;
            } else if belongs != all_belong {
                break;
            }
            if is_renewed {
                sweep.renews -= 1;
                mark.changed = cut.generation;
                self.latest = self.latest.max(cut.generation);
            }
            if is_open {
                self.oldest_seen = self.oldest_seen.min(mark.changed);
            }
            count += 1;
        }
        (count, all_belong)
    }

    /// The entries get another order: at each place stands what stood at that one of `places`.
    pub(crate) fn reorder(&mut self, places: impl Iterator<Item = u32>) {
        let marks = self.marks();
        let reordered: Vec<Stamp> = places.map(|place| marks[place as usize]).collect();
        (self.entries, self.marks) = (reordered.len(), reordered);
        let is_fresh = |mark: &&Stamp| mark.changed == self.latest;
        self.fresh = self.marks.iter().filter(is_fresh).count();
        self.next = 0;
    }
}

/// Watches a table whose entries `write` appends, given their key and value.
pub(crate) struct Touch<'a, W> {
    pub(crate) stamps: &'a mut Stamps,
    pub(crate) log: &'a mut CutLog,
    pub(crate) write: W,
}

impl<K, V, W> Watch<K, V> for Touch<'_, W>
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

/// Watches a table whose entries [are all fresh](Stamps::are_fresh): only new ones are news, which are counted, and a record costs what it does without
/// cuts. Until it is dropped the stamps are behind the table.
pub(crate) struct Fresh<'a> {
    stamps: &'a mut Stamps,
    log: &'a CutLog,
    inserted: usize,
}

impl<'a> Fresh<'a> {
    pub(crate) fn new(stamps: &'a mut Stamps, log: &'a CutLog) -> Self {
        Fresh {
            stamps,
            log,
            inserted: 0,
        }
    }
}

impl<K, V> Watch<K, V> for Fresh<'_> {
    #[inline]
    fn changes(&mut self, _: u32, _: &K, _: &V) {}

    #[inline]
    fn inserted(&mut self, _: u32) {
        self.inserted += 1;
    }
}

/// Also where a record's code has panicked, in the middle of a batch: what came before it is there.
impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        self.stamps.push_many(self.inserted, self.log);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::{Cut, Epoch};
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Insert(usize),
        Change(usize),
        Cut,
        Sweep(usize, (u32, usize), usize),
        Reverse,
        Clear,
    }

    fn sweep_of(cut: CutAt, left: usize, (renews_to, renews): (u32, usize)) -> Sweep {
        Sweep {
            cut,
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
            3 => Just(Step::Cut),
            3 => (0usize..50, (0u32..9, 0usize..9), 1usize..9)
                .prop_map(|(left, renews, writes)| Step::Sweep(left, renews, writes)),
            1 => Just(Step::Reverse),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn what_is_fresh_or_behind_a_cut_is_so_entry_by_entry(steps in prop::collection::vec(step(), 0..200)) {
            let (mut stamps, mut log, mut epoch) = (Stamps::default(), CutLog::default(), 0);
            // As well, with the marks of all entries from the start.
            let mut marked = Stamps::default();
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
                            let mut fresh = Fresh::new(both, &log);
                            (0..keys).for_each(|_| Watch::<u64, u64>::inserted(&mut fresh, 0));
                        }
                        prop_assert_eq!(stamps.entries, entries + keys);
                    }
                    Step::Insert(_) => {}
                    Step::Change(at) if entries > 0 && stamps.is_news(at % entries, &log) => {
                        let before = stamps.change(at % entries, &log);
                        let known = marked.change(at % entries, &log);
                        if let Some(cut) = log.writing() {
                            let is_overtaken = |before| sweep_of(cut, 0, (0, 0)).is_overtaken(before);
                            prop_assert_eq!(is_overtaken(before), is_overtaken(known));
                        }
                    }
                    Step::Change(_) => {}
                    Step::Cut => {
                        epoch += 1;
                        log.take_cut(Cut::full(Epoch(epoch)));
                    }
                    Step::Sweep(left, (renews_to, renews), writes) => {
                        let Some(cut) = log.writing() else { continue };
                        let swept = [&mut stamps, &mut marked].map(|it| {
                            let (mut sweep, mut swept) = (sweep_of(cut, left, (renews_to, renews)), Vec::new());
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
                // What is known of newer ones without their stamps is left as it is.
                let marks = stamps.clone().marks().to_vec();
                for (at, mark) in marks.iter().enumerate() {
                    prop_assert_eq!(stamps.is_news(at, &log), mark.changed != log.generation());
                }
                let all_fresh = marks.iter().all(|mark| mark.changed == log.generation());
                prop_assert_eq!(stamps.are_fresh(&log), all_fresh);
                if let Some(cut) = log.writing() && stamps.are_behind(cut) {
                    prop_assert!(marks.iter().all(|mark| mark.changed > cut.generation));
                }
            }
        }
    }
}
