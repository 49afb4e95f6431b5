//! What has changed since the last commit, and the cut that is being written.

use std::collections::VecDeque;
use std::mem;

use ardea_core::{Cut, CutWriter, Epoch, Error, Result, StateChunk};

/// The slots that have changed since the last commit, by the cuts that were taken since; and the cut that is being written.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Those that changed since the last cut, each once.
    now: Vec<u32>,
    has_removals: bool,
    /// Those of cuts of which no commit is known, the oldest first. A slot may be in several.
    undecided: VecDeque<Frozen>,
    /// What changed up to this generation has been committed.
    pub(crate) base: u32,
    /// Committed while a cut is being written that needs the lists.
    committed: Option<Epoch>,
    /// What may be free by now.
    freeing: Vec<Frozen>,
    pub(crate) writing: Option<Writing>,
    /// Entries of the cut that have changed since, as they were.
    pub(crate) kept: StateChunk,
    /// How much of that has been written.
    kept_written: usize,
    /// Why an entry could not be kept.
    pub(crate) failed: Option<Error>,
}

/// What changed before a cut and after the one before.
#[derive(Debug)]
struct Frozen {
    epoch: Epoch,
    generation: u32,
    slots: Vec<u32>,
    has_removals: bool,
}

/// A cut that is being written.
#[derive(Debug)]
pub(crate) struct Writing {
    epoch: Epoch,
    is_last: bool,
    /// The one that ended with it.
    pub(crate) generation: u32,
    /// Of a full cut, how many slots there were.
    count: Option<u32>,
    /// Of an increment, after which generation its changes begin, and how many lists hold them.
    pub(crate) base: u32,
    lists: usize,
    /// The list that is being written, and the place in it.
    list: usize,
    next: usize,
}

impl Writing {
    pub(crate) fn is_full(&self) -> bool {
        self.count.is_some()
    }

    /// Whether a slot belongs to the cut that was changed last in this generation, before the cut was taken.
    pub(super) fn holds(&self, slot: u32, changed: u32) -> bool {
        match self.count {
            Some(count) => slot < count,
            None => changed > self.base,
        }
    }
}

impl Changes {
    /// A slot has changed for the first time since the last cut.
    pub(crate) fn note(&mut self, slot: u32) {
        self.now.push(slot);
    }

    /// One that has changed holds no key any more.
    pub(super) fn note_removal(&mut self) {
        self.has_removals = true;
    }

    /// A cut is taken.
    pub(crate) fn freeze(&mut self, epoch: Epoch, generation: u32) {
        self.end();
        self.undecided.push_back(Frozen {
            epoch,
            generation,
            slots: mem::take(&mut self.now),
            has_removals: mem::take(&mut self.has_removals),
        });
    }

    /// How many places the lists have.
    #[cfg(test)]
    pub(super) fn listed(&self) -> usize {
        self.undecided.iter().map(|f| f.slots.len()).sum()
    }

    /// Whether the lists of cuts that nobody heard of take more room than it would to look at all slots.
    pub(crate) fn has_grown_beyond(&self, slots: usize) -> bool {
        self.undecided.len() > 1
            && self.undecided.iter().map(|f| f.slots.len()).sum::<usize>() > slots
    }

    /// All that has changed since the last commit, in one list.
    pub(crate) fn merge(&mut self, slots: Vec<u32>) {
        if let Some(mut last) = self.undecided.pop_back() {
            last.slots = slots;
            last.has_removals |= self.undecided.iter().any(|frozen| frozen.has_removals);
            self.undecided.clear();
            self.undecided.push_back(last);
        }
    }

    /// From now on the cut is written; a full one has so many slots.
    pub(crate) fn begin(&mut self, cut: Cut, generation: u32, count: Option<u32>) {
        self.writing = Some(Writing {
            epoch: cut.epoch,
            is_last: cut.is_last,
            generation,
            count,
            base: self.base,
            lists: self.undecided.len(),
            list: 0,
            next: 0,
        });
    }

    pub(crate) fn is_full(&self) -> bool {
        self.writing.as_ref().is_some_and(Writing::is_full)
    }

    /// The next slot that may belong to the cut.
    pub(crate) fn next(&mut self) -> Option<u32> {
        let writing = self.writing.as_mut()?;
        if let Some(count) = writing.count {
            let slot = writing.next as u32;
            writing.next += 1;
            return (slot < count).then_some(slot);
        }
        while writing.list < writing.lists {
            let slots = &self.undecided.get(writing.list)?.slots;
            if let Some(slot) = slots.get(writing.next) {
                writing.next += 1;
                return Some(*slot);
            }
            writing.list += 1;
            writing.next = 0;
        }
        None
    }

    /// Writes what was kept of entries that have changed, as far as there is room.
    pub(crate) fn move_kept(&mut self, writer: &mut CutWriter<'_>) -> Result<()> {
        let mut kept = self.kept.entries_from(self.kept_written);
        while writer.has_room() {
            let Some(entry) = kept.next() else {
                break;
            };
            writer.copy(entry)?;
        }
        self.kept_written = kept.position();
        if self.kept_written == self.kept.byte_len() {
            self.kept.clear();
            self.kept_written = 0;
        }
        Ok(())
    }

    /// The cut is written, or void.
    pub(crate) fn end(&mut self) {
        self.writing = None;
        self.kept.clear();
        self.kept_written = 0;
        self.failed = None;
        if let Some(epoch) = self.committed.take() {
            self.commit(epoch);
        }
    }

    /// An epoch is committed. While a cut is being written, that goes by the lists that there were when it was taken.
    pub(crate) fn commit(&mut self, epoch: Epoch) {
        if self.writing.is_some() {
            self.committed = self.committed.max(Some(epoch));
            return;
        }
        while let Some(frozen) = self.undecided.pop_front_if(|frozen| frozen.epoch <= epoch) {
            self.base = frozen.generation;
            if frozen.has_removals {
                self.freeing.push(frozen);
            }
        }
    }

    /// An epoch is given up. A last cut holds for others too.
    pub(crate) fn give_up(&mut self, epoch: Epoch) {
        let is_void = |writing: &Writing| writing.epoch <= epoch && !writing.is_last;
        if self.writing.as_ref().is_some_and(is_void) {
            self.end();
        }
    }

    /// A slot that is free if it holds no key and has not changed after this generation.
    pub(super) fn next_to_free(&mut self) -> Option<(u32, u32)> {
        loop {
            let frozen = self.freeing.last_mut()?;
            if let Some(slot) = frozen.slots.pop() {
                return Some((slot, frozen.generation));
            }
            self.freeing.pop();
        }
    }
}
