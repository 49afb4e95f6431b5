//! What has changed in a table, entry by entry.

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
#[derive(Default, Debug)]
pub(crate) struct Stamps {
    marks: Vec<Stamp>,
    /// The latest change.
    latest: u32,
    /// The generation in which the first entry came; zero if that was in another life.
    born: u32,
    /// The next place to look at, for the cut of this generation.
    next: usize,
    next_for: u32,
}

impl Stamps {
    /// Whether cuts may hold something of the table, which is removed in the generation `gone`.
    pub(crate) fn are_known(&self, log: &CutLog, gone: u32) -> bool {
        log.is_known(self.born, gone)
    }

    /// Whether there are none, because no cuts are taken or there are no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Makes them those of an empty table, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.marks.clear();
        (self.latest, self.born, self.next, self.next_for) = (0, 0, 0, 0);
    }

    /// Of entries that come back from another life, so many.
    pub(crate) fn restored(entries: usize) -> Self {
        Stamps {
            marks: vec![Stamp::default(); entries],
            ..Stamps::default()
        }
    }

    /// An entry is new, at the next place.
    pub(crate) fn push(&mut self, log: &CutLog) {
        if self.marks.is_empty() {
            self.born = log.generation();
        }
        // It belongs to no cut that was taken before, as it has changed after it.
        self.marks.push(Stamp {
            changed: log.generation(),
            written: 0,
        });
        self.latest = log.generation();
    }

    /// The entry at `place` is about to change. `write` appends it as it is now.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        place: usize,
        log: &mut CutLog,
        write: impl FnOnce(&mut StateChunk) -> Result<()>,
    ) {
        let generation = log.generation();
        if self
            .marks
            .get(place)
            .is_some_and(|mark| mark.changed != generation)
        {
            self.touch_first(place, log, write);
        }
    }

    #[cold]
    #[inline(never)]
    fn touch_first(
        &mut self,
        place: usize,
        log: &mut CutLog,
        write: impl FnOnce(&mut StateChunk) -> Result<()>,
    ) {
        let mark = &mut self.marks[place];
        if let Some(cut) = log.writing()
            && cut.holds(mark.changed)
            && mark.written != cut.generation
        {
            log.put_aside(write);
        }
        mark.changed = log.generation();
        self.latest = log.generation();
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

    /// The entries get another order: at each place stands what stood at that one of `places`.
    pub(crate) fn reorder(&mut self, places: impl Iterator<Item = u32>) {
        self.marks = places.map(|place| self.marks[place as usize]).collect();
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
