//! What has changed since the last commit, and the cut that is being written.

use std::collections::VecDeque;
use std::mem;

use ardea_core::{Cut, CutWriter, Epoch, Result, StateChunk};

use crate::keyed::cut_at_hand::CutAtHand;

/// The slots that have changed since the last commit, by the cuts that were taken since; and the cut that is being written.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Those that changed since the last cut, each once.
    now: Vec<u32>,
    /// Those of cuts of which no commit is known, the oldest first. A slot may be in several.
    undecided: VecDeque<Frozen>,
    /// What changed up to this generation has been committed.
    pub(crate) base: u32,
    at_hand: CutAtHand<Writing>,
}

/// What changed before a cut and after the one before.
#[derive(Debug)]
struct Frozen {
    epoch: Epoch,
    generation: u32,
    slots: Vec<u32>,
    /// Any slot may have changed: they are not listed, as that would be as long.
    is_all: bool,
    /// Its epoch has been given up: what changed still counts for the next increment, but nobody ever goes back to this cut.
    is_void: bool,
}

/// A cut that is being written.
#[derive(Debug)]
pub(crate) struct Writing {
    /// The one that ended with it.
    pub(crate) generation: u32,
    /// How many slots there were.
    count: u32,
    is_full: bool,
    /// Of an increment, after which generation its changes begin, and how many lists hold them.
    pub(crate) base: u32,
    lists: usize,
    /// The list that is being written, and the place in it.
    list: usize,
    next: usize,
}

impl Writing {
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether what was changed last in this generation is written where it stands: what changed after the cut was put aside by then.
    pub(super) fn takes(&self, changed: u32) -> bool {
        self.is_full() || (self.base < changed && changed <= self.generation)
    }

    /// The next of all slots that there were.
    fn next_of_all(&mut self) -> Option<u32> {
        let slot = Some(self.next as u32).filter(|slot| *slot < self.count)?;
        self.next += 1;
        Some(slot)
    }

    /// Whether a slot belongs to the cut that was changed last in this generation, before the cut was taken.
    pub(super) fn holds(&self, slot: u32, changed: u32) -> bool {
        match self.is_full {
            true => slot < self.count,
            false => self.base < changed && changed <= self.generation,
        }
    }
}

impl Changes {
    /// A slot has changed for the first time since the last cut.
    pub(crate) fn note(&mut self, slot: u32) {
        self.now.push(slot);
    }

    /// Whether a cut that counts, or may yet, holds a key that came in the generation `born`, and none that counts says that it was removed
    /// in the generation `gone`.
    pub(super) fn is_known(&self, born: u32, gone: u32) -> bool {
        let holds = |frozen: &Frozen| !frozen.is_void && (born..gone).contains(&frozen.generation);
        self.base < gone && (born <= self.base || self.undecided.iter().any(holds))
    }

    /// A cut is taken.
    pub(crate) fn freeze(&mut self, epoch: Epoch, generation: u32) {
        self.end();
        self.undecided.push_back(Frozen {
            epoch,
            generation,
            slots: mem::take(&mut self.now),
            is_all: false,
            is_void: false,
        });
    }

    /// How many places the lists have.
    #[cfg(test)]
    pub(super) fn listed(&self) -> usize {
        self.undecided.iter().map(|f| f.slots.len()).sum()
    }

    /// Whether the lists of cuts that nobody heard of take more room than it would to look at all slots.
    fn have_grown_beyond(&self, slots: usize) -> bool {
        let listed = self.undecided.iter().map(|frozen| match frozen.is_all {
            true => slots + 1,
            false => frozen.slots.len(),
        });
        self.undecided.len() > 1 && listed.sum::<usize>() > slots
    }

    /// All that has changed since the last commit is looked for among all slots. Of the cuts before the last only that they may be committed
    /// yet is kept.
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

    /// From now on the cut is written; there are so many slots.
    pub(crate) fn begin(&mut self, cut: Cut, generation: u32, slots: usize) {
        if self.have_grown_beyond(slots) {
            self.merge();
        }
        let writing = Writing {
            generation,
            count: slots as u32,
            is_full: cut.is_full(),
            base: self.base,
            lists: self.undecided.len(),
            list: 0,
            next: 0,
        };
        self.at_hand.begin(cut, writing);
    }

    /// The cut that is being written.
    pub(crate) fn writing(&self) -> Option<&Writing> {
        self.at_hand.get()
    }

    /// The next slot that may belong to the cut.
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

    /// Puts an entry of the cut aside, which is about to change.
    pub(crate) fn put_aside(&mut self, write: impl FnOnce(&mut StateChunk) -> Result<()>) {
        self.at_hand.put_aside(write);
    }

    /// Writes what was put aside, as far as there is room.
    ///
    /// # Errors
    /// Why an entry could not be put aside: the cut can't be written then.
    pub(crate) fn write_aside(&mut self, writer: &mut CutWriter<'_>) -> Result<()> {
        self.at_hand.write_aside(writer)
    }

    /// The cut is written, or void.
    pub(crate) fn end(&mut self) {
        if let Some(epoch) = self.at_hand.end() {
            self.commit(epoch);
        }
    }

    /// An epoch is committed. While a cut is being written, that goes by the lists that there were when it was taken.
    pub(crate) fn commit(&mut self, epoch: Epoch) {
        if self.at_hand.puts_off(epoch) {
            return;
        }
        while let Some(frozen) = self.undecided.pop_front_if(|frozen| frozen.epoch <= epoch) {
            self.base = frozen.generation;
        }
    }

    /// An epoch is given up.
    pub(crate) fn give_up(&mut self, epoch: Epoch) {
        if self.at_hand.is_void_without(epoch) {
            self.end();
        }
        let goes_on = self.at_hand.epoch() == Some(epoch);
        let given_up = self.undecided.iter_mut().filter(|of| of.epoch == epoch);
        given_up.for_each(|frozen| frozen.is_void |= !goes_on);
    }
}
