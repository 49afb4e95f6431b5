//! Which changes belong to which cut, where what is remembered lies in tables that know by themselves what has changed.

use std::collections::VecDeque;

use ardea_core::{Cut, CutWriter, Epoch, Progress, Result, StateChunk};

use crate::keyed::cut_at_hand::CutAtHand;

/// The cuts of one processor: time is counted in generations, one from a cut to the next.
///
/// Each entry of its tables has a [`Stamp`](super::Stamp): the generation in which it was changed last. The tables are walked through
/// for each cut, so that nothing has to be listed; where nothing has changed since the last commit, that costs a look at the table.
#[derive(Debug)]
pub(crate) struct CutLog {
    /// The one that is under way.
    generation: u32,
    /// What changed up to this generation has been committed.
    base: u32,
    /// Cuts of which no commit is known, the oldest first, with the generations that ended with them.
    undecided: VecDeque<(Epoch, u32)>,
    at_hand: CutAtHand<CutAt>,
}

/// A cut that is being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutAt {
    is_full: bool,
    /// The generation that ended with it.
    pub(super) generation: u32,
    /// Of an increment, after which generation its changes begin.
    base: u32,
}

impl CutAt {
    /// Whether an entry belongs to it that was changed last in this generation.
    #[inline]
    pub(super) fn holds(&self, changed: u32) -> bool {
        changed <= self.generation && (self.is_full || changed > self.base)
    }

    /// Whether it may hold something of a table in which this is the latest change.
    pub(super) fn may_hold(&self, latest: u32) -> bool {
        self.is_full || latest > self.base
    }

    /// Whether it holds all that there is.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The generation that ended with it.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether what was removed in this generation was there when the cut was taken.
    pub(crate) fn is_before(&self, removed: u32) -> bool {
        self.generation < removed
    }

    /// Whether it says what has been removed.
    pub(crate) fn names_removed(&self) -> bool {
        !self.is_full
    }
}

impl Default for CutLog {
    fn default() -> Self {
        CutLog {
            generation: 1,
            base: 0,
            undecided: VecDeque::new(),
            at_hand: CutAtHand::default(),
        }
    }
}

impl CutLog {
    /// Goes on behind so many generations, all of them committed.
    pub(crate) fn behind(base: u32) -> Self {
        CutLog {
            generation: base + 1,
            base,
            ..CutLog::default()
        }
    }

    /// What changed up to this generation has been committed.
    pub(crate) fn base(&self) -> u32 {
        self.base
    }

    /// The generation under way.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// The cut that is being written.
    #[inline]
    pub(crate) fn writing(&self) -> Option<CutAt> {
        self.at_hand.get().copied()
    }

    /// What is there now belongs to this cut.
    pub(crate) fn take_cut(&mut self, cut: Cut) {
        self.end();
        self.undecided.push_back((cut.epoch, self.generation));
        let writing = CutAt {
            is_full: cut.is_full(),
            generation: self.generation,
            base: self.base,
        };
        self.at_hand.begin(cut, writing);
        self.generation += 1;
    }

    /// Puts an entry of the cut aside, which is about to change.
    pub(super) fn put_aside(&mut self, write: impl FnOnce(&mut StateChunk) -> Result<()>) {
        self.at_hand.put_aside(write);
    }

    /// Begins a call that writes on: what was put aside comes first. The cut, if there is one to write on at.
    pub(crate) fn write_aside(&mut self, writer: &mut CutWriter<'_>) -> Result<Option<CutAt>> {
        if let Err(error) = self.at_hand.write_aside(writer) {
            self.end();
            return Err(error);
        }
        Ok(self.writing())
    }

    /// All that is there has been looked at: done, unless something that was put aside found no room.
    pub(crate) fn finish(&mut self) -> Progress {
        let is_whole = self.at_hand.has_nothing_aside();
        if is_whole {
            self.end();
        }
        Progress::done_if(is_whole)
    }

    /// The cut is written, or void.
    pub(crate) fn end(&mut self) {
        if let Some(epoch) = self.at_hand.end() {
            self.commit(epoch);
        }
    }

    /// An epoch is committed. What that makes needless is still kept while a cut is being written.
    pub(crate) fn commit(&mut self, epoch: Epoch) {
        if self.at_hand.puts_off(epoch) {
            return;
        }
        while let Some((_, generation)) = self.undecided.pop_front_if(|(of, _)| *of <= epoch) {
            self.base = generation;
        }
    }

    /// An epoch is given up.
    pub(crate) fn give_up(&mut self, epoch: Epoch) {
        if self.at_hand.is_void_without(epoch) {
            self.end();
        }
        let lasts = self.at_hand.epoch();
        self.undecided
            .retain(|(of, _)| *of != epoch || lasts == Some(epoch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_counts_once_the_cut_at_hand_is_written() {
        let mut log = CutLog::default();
        log.take_cut(Cut::full(Epoch(1)));
        log.end();
        log.take_cut(Cut::changes(Epoch(2), Epoch(0)));
        log.commit(Epoch(1));
        assert_eq!(log.base(), 0);
        assert!(
            log.writing()
                .is_some_and(|cut| cut.holds(1) && cut.holds(2) && !cut.holds(3))
        );
        log.end();
        assert_eq!(log.base(), 1);
    }

    #[test]
    fn what_was_given_up_is_never_gone_on_from() {
        let mut log = CutLog::behind(3);
        assert_eq!((log.base(), log.generation()), (3, 4));
        log.take_cut(Cut::full(Epoch(1)));
        log.give_up(Epoch(1));
        log.take_cut(Cut::full(Epoch(2)));
        log.end();
        log.commit(Epoch(1));
        assert_eq!(log.base(), 3);
        log.commit(Epoch(2));
        assert_eq!(log.base(), 5);
    }

    #[test]
    fn a_cut_that_was_given_up_is_void_unless_it_is_the_last() {
        let mut log = CutLog::default();
        log.take_cut(Cut::full(Epoch(1)));
        log.give_up(Epoch(1));
        assert!(log.writing().is_none());
        log.take_cut(Cut {
            is_last: true,
            ..Cut::full(Epoch(2))
        });
        log.give_up(Epoch(2));
        assert!(log.writing().is_some());
    }
}
