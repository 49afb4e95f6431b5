//! What has become of the records that wait in an interval join since the last commit, and the cut of them that is being written.

use std::collections::VecDeque;
use std::mem;

use ardea_core::{Cut, CutWriter, Epoch, Error, Key, Progress, Result, StateChunk, Timestamp};

use crate::join::gone::Gone;
use crate::join::kept_sides::{At, KeptSides, Side, write_gone};
use crate::join::sides::{Sides, Stamp, Waiting};
use crate::keyed::{Changes, KeyedStates, PLACES_PER_CALL};

/// The records that came, met another or went, for the cuts that are taken.
///
/// It knows of keys which of them changed, and finds the records by their generations when it writes; so a record that waits costs nothing
/// but its stamp. A record that is about to change while it belongs to a cut, and has not been written, is written then.
pub(crate) struct Journal<L, R> {
    kept: KeptSides<L, R>,
    /// Between two cuts one number, above those of all records that came back.
    generation: u32,
    /// How many records have come in this generation.
    number: u32,
    /// The slots of keys with records that came, or met another.
    changes: Changes,
    gone: Gone,
    /// The key that is being written.
    scan: Option<Scan>,
    /// Why it is not known any more what has gone.
    broken: Option<Error>,
}

/// How far a key has been written.
#[derive(Clone, Copy)]
struct Scan {
    slot: u32,
    /// Its left side has been.
    in_right: bool,
    /// The record of the side that was looked at last.
    after: Option<(Timestamp, Stamp)>,
}

/// Which records belong to a cut.
#[derive(Clone, Copy)]
struct Extent {
    /// What came or met later does not.
    until: u32,
    /// Of an increment: what came and met by then does not.
    base: Option<u32>,
}

impl Extent {
    /// Whether the cut holds a record that is there, and that has not been put aside.
    fn has(self, came: u32, matched: u32) -> bool {
        let is_new = |base| came > base || matched > base;
        came <= self.until && matched <= self.until && self.base.is_none_or(is_new)
    }
}

impl<L, R> Journal<L, R> {
    /// For records that are written so; none has come yet.
    pub(super) fn new(kept: KeptSides<L, R>) -> Self {
        Journal {
            kept,
            generation: 1,
            number: 0,
            changes: Changes::default(),
            gone: Gone::default(),
            scan: None,
            broken: None,
        }
    }

    /// Records have come back, the latest from this generation.
    pub(super) fn resume_after(&mut self, generation: u32) {
        self.changes.base = generation;
        self.generation = generation.saturating_add(1);
    }

    fn extent(&self) -> Option<Extent> {
        let writing = self.changes.writing()?;
        Some(Extent {
            until: writing.generation,
            base: (!writing.is_full()).then_some(writing.base),
        })
    }

    /// Something of the key at a slot changes.
    fn note(&mut self, slot: u32, changed: &mut u32) {
        if mem::replace(changed, self.generation) != self.generation {
            self.changes.note(slot);
        }
    }

    /// Writes a record that is about to change, if the cut at hand has not come to it. `reached` is that of its key.
    fn set_aside<K: Key>(&mut self, (key, slot): (&K, u32), reached: u32, at: At<'_, L, R>) {
        let Some(extent) = self.extent() else { return };
        let (is_right, place, matched) = match at {
            Side::Left(waiting) => (false, waiting.place(), waiting.matched),
            Side::Right(waiting) => (true, waiting.place(), waiting.matched),
        };
        let is_ahead = match self.scan.filter(|scan| scan.slot == slot) {
            Some(scan) => (is_right, Some(place)) > (scan.in_right, scan.after),
            None => reached != extent.until,
        };
        if is_ahead && extent.has(place.1.generation, matched) {
            let kept = &self.kept;
            self.changes.put_aside(|chunk| kept.write(chunk, key, at));
        }
    }

    /// A record goes.
    fn note_gone<K: Key>(&mut self, key: &K, at: At<'_, L, R>) {
        if self.gone.is_known(at.stamp().generation, self.changes.base)
            && let Err(error) = write_gone(&mut self.gone.now, key, &at)
        {
            self.broken.get_or_insert(error);
        }
    }

    /// What is there now belongs to this cut.
    pub(super) fn take_cut<K: Key>(
        &mut self,
        cut: Cut,
        keys: &KeyedStates<K, Sides<L, R>>,
    ) -> Result<()> {
        self.changes.freeze(cut.epoch, self.generation);
        self.settle();
        self.gone.freeze(cut.epoch, self.generation);
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.changes.begin(cut, self.generation, keys.slots());
        self.generation += 1;
        self.number = 0;
        Ok(())
    }

    /// Writes on at the cut that was taken last.
    pub(super) fn write_cut<K: Key>(
        &mut self,
        keys: &mut KeyedStates<K, Sides<L, R>>,
        writer: &mut CutWriter<'_>,
    ) -> Result<Progress> {
        let progress = self.write_some(keys, writer);
        if !matches!(progress, Ok(Progress { done: false, .. })) {
            self.changes.end();
            self.settle();
        }
        progress
    }

    fn write_some<K: Key>(
        &mut self,
        keys: &mut KeyedStates<K, Sides<L, R>>,
        writer: &mut CutWriter<'_>,
    ) -> Result<Progress> {
        let Some(extent) = self.extent() else {
            return Ok(Progress::DONE);
        };
        self.changes.write_aside(writer)?;
        if extent.base.is_some() && !self.gone.write(writer)? {
            return Ok(Progress::MADE);
        }
        let mut places = PLACES_PER_CALL;
        while places > 0 && writer.has_room() {
            let Some(scan) = self.scan.take() else {
                places -= 1;
                let Some(slot) = self.changes.next() else {
                    return Ok(Progress::DONE);
                };
                self.scan = reach(keys, slot, extent);
                continue;
            };
            if let Some((key, sides)) = keys.get_mut(scan.slot) {
                self.scan = self.write_key((key, &*sides), scan, extent, &mut places, writer)?;
            }
        }
        Ok(Progress::MADE)
    }

    /// Writes on at a key, as far as there is room; where it stands, nothing if the key is done.
    fn write_key<K: Key>(
        &self,
        (key, sides): (&K, &Sides<L, R>),
        mut scan: Scan,
        extent: Extent,
        places: &mut usize,
        writer: &mut CutWriter<'_>,
    ) -> Result<Option<Scan>> {
        if !scan.in_right {
            let write = |chunk: &mut StateChunk, waiting: &Waiting<L>| {
                self.kept.write(chunk, key, Side::Left(waiting))
            };
            if !write_side(&sides.left, &mut scan.after, extent, places, writer, write)? {
                return Ok(Some(scan));
            }
            scan = Scan {
                in_right: true,
                after: None,
                ..scan
            };
        }
        let write = |chunk: &mut StateChunk, waiting: &Waiting<R>| {
            self.kept.write(chunk, key, Side::Right(waiting))
        };
        let is_done = write_side(&sides.right, &mut scan.after, extent, places, writer, write)?;
        Ok((!is_done).then_some(scan))
    }

    /// An epoch is committed.
    pub(super) fn commit(&mut self, epoch: Epoch) {
        self.changes.commit(epoch);
        self.settle();
    }

    /// An epoch is given up.
    pub(super) fn give_up(&mut self, epoch: Epoch) {
        self.changes.give_up(epoch);
        self.gone.give_up(epoch);
        self.settle();
    }

    /// While no cut is written: what is committed needs not be known any more.
    fn settle(&mut self) {
        if self.changes.writing().is_none() {
            self.scan = None;
            self.gone.settle(self.changes.base);
        }
    }
}

/// Begins with the key at a slot, if it may have something of the cut and that has not come to it before.
fn reach<K: Key, L, R>(
    keys: &mut KeyedStates<K, Sides<L, R>>,
    slot: u32,
    extent: Extent,
) -> Option<Scan> {
    let (_, sides) = keys.get_mut(slot)?;
    let is_first = mem::replace(&mut sides.reached, extent.until) != extent.until;
    let has_changed = extent.base.is_none_or(|base| sides.changed > base);
    (is_first && has_changed).then_some(Scan {
        slot,
        in_right: false,
        after: None,
    })
}

/// Writes the records of a side that belong to the cut, those behind `after`, which moves with them; whether all have been.
fn write_side<T>(
    side: &VecDeque<Waiting<T>>,
    after: &mut Option<(Timestamp, Stamp)>,
    extent: Extent,
    places: &mut usize,
    writer: &mut CutWriter<'_>,
    write: impl Fn(&mut StateChunk, &Waiting<T>) -> Result<()>,
) -> Result<bool> {
    let start = after.map_or(0, |after| {
        side.partition_point(|other| other.place() <= after)
    });
    for waiting in side.range(start..) {
        if *places == 0 || !writer.has_room() {
            return Ok(false);
        }
        *places -= 1;
        *after = Some(waiting.place());
        if extent.has(waiting.stamp.generation, waiting.matched) {
            write(writer.chunk(), waiting)?;
        }
    }
    Ok(true)
}

/// The journal, if there is one, opened at a key.
pub(crate) struct Book<'a, K, L, R> {
    journal: Option<&'a mut Journal<L, R>>,
    key: &'a K,
    slot: u32,
}

impl<'a, K: Key, L, R> Book<'a, K, L, R> {
    pub(super) fn open(journal: Option<&'a mut Journal<L, R>>, (key, slot): (&'a K, u32)) -> Self {
        Book { journal, key, slot }
    }

    /// The generation at hand; never zero.
    pub(super) fn generation(&self) -> u32 {
        self.journal
            .as_ref()
            .map_or(1, |journal| journal.generation)
    }

    /// A record comes that will wait. `changed` is that of its key.
    pub(super) fn comes(&mut self, changed: &mut u32) -> Stamp {
        let Some(journal) = &mut self.journal else {
            return Stamp {
                generation: 1,
                number: 0,
            };
        };
        journal.note(self.slot, changed);
        let number = journal.number;
        journal.number = number.wrapping_add(1);
        Stamp {
            generation: journal.generation,
            number,
        }
    }

    /// A left record is about to have met another, which it had not.
    pub(super) fn meets(&mut self, changed: &mut u32, reached: u32, waiting: &Waiting<L>) {
        if let Some(journal) = &mut self.journal {
            journal.note(self.slot, changed);
            journal.set_aside((self.key, self.slot), reached, Side::Left(waiting));
        }
    }

    /// A record goes.
    pub(super) fn goes(&mut self, reached: u32, at: At<'_, L, R>) {
        if let Some(journal) = &mut self.journal {
            journal.set_aside((self.key, self.slot), reached, at);
            journal.note_gone(self.key, at);
        }
    }
}
