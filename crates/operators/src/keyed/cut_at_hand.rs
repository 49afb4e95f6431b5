//! The cut that is being written, whatever knows which entries belong to it.

use ardea_core::{Cut, CutWriter, Epoch, Error, Result, StateChunk};

/// The cut that is being written, with what its writer has to know of it; and entries of it that have changed since, as they were.
#[derive(Debug)]
pub(crate) struct CutAtHand<C> {
    cut: Option<(Cut, C)>,
    /// Committed meanwhile.
    committed: Option<Epoch>,
    aside: StateChunk,
    /// How much of that has been written.
    aside_written: usize,
    /// Why an entry could not be put aside.
    failed: Option<Error>,
}

impl<C> Default for CutAtHand<C> {
    fn default() -> Self {
        CutAtHand {
            cut: None,
            committed: None,
            aside: StateChunk::default(),
            aside_written: 0,
            failed: None,
        }
    }
}

impl<C> CutAtHand<C> {
    /// From now on this one is written. The one before it has [ended](Self::end).
    pub(super) fn begin(&mut self, cut: Cut, with: C) {
        self.cut = Some((cut, with));
    }

    /// What its writer has to know of it; nothing if none is being written.
    #[inline]
    pub(super) fn get(&self) -> Option<&C> {
        self.cut.as_ref().map(|(_, with)| with)
    }

    /// The same, to change.
    pub(super) fn get_mut(&mut self) -> Option<&mut C> {
        self.cut.as_mut().map(|(_, with)| with)
    }

    /// The epoch that it is of.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.cut.as_ref().map(|(cut, _)| cut.epoch)
    }

    /// Puts an entry aside, which is about to change.
    pub(super) fn put_aside(&mut self, write: impl FnOnce(&mut StateChunk) -> Result<()>) {
        if let Err(error) = write(&mut self.aside) {
            self.failed.get_or_insert(error);
        }
    }

    /// Writes what was put aside, as far as there is room.
    ///
    /// # Errors
    /// Why an entry could not be put aside: the cut can't be written then.
    pub(super) fn write_aside(&mut self, writer: &mut CutWriter<'_>) -> Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut aside = self.aside.entries_from(self.aside_written);
        while writer.has_room() {
            let Some(entry) = aside.next() else {
                break;
            };
            writer.copy(entry)?;
        }
        self.aside_written = aside.position();
        if self.aside_written == self.aside.byte_len() {
            self.aside.clear();
            self.aside_written = 0;
        }
        Ok(())
    }

    /// Whether all that was put aside has been written.
    pub(super) fn has_nothing_aside(&self) -> bool {
        self.aside.is_empty()
    }

    /// It is written, or void. The epoch whose commit was [put off](Self::puts_off) until now.
    pub(super) fn end(&mut self) -> Option<Epoch> {
        self.cut = None;
        self.aside.clear();
        self.aside_written = 0;
        self.failed = None;
        self.committed.take()
    }

    /// Whether the commit of an epoch has to wait until this cut has ended, as it is written by what was known when it was taken.
    pub(super) fn puts_off(&mut self, epoch: Epoch) -> bool {
        if self.cut.is_some() {
            self.committed = self.committed.max(Some(epoch));
        }
        self.cut.is_some()
    }

    /// Whether it is void once this epoch is given up. A last cut holds for others too.
    pub(super) fn is_void_without(&self, epoch: Epoch) -> bool {
        let is_void = |(cut, _): &(Cut, C)| cut.epoch <= epoch && !cut.is_last;
        self.cut.as_ref().is_some_and(is_void)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::ErrorCode;

    fn at_hand(cut: Cut) -> CutAtHand<()> {
        let mut at_hand = CutAtHand::default();
        at_hand.begin(cut, ());
        at_hand
    }

    #[test]
    fn a_commit_is_put_off_until_the_cut_has_ended() {
        let mut hand = CutAtHand::<()>::default();
        assert!(!hand.puts_off(Epoch(1)));
        let mut hand = at_hand(Cut::full(Epoch(4)));
        assert!(hand.puts_off(Epoch(3)) && hand.puts_off(Epoch(2)));
        assert_eq!(hand.end(), Some(Epoch(3)));
        assert_eq!(hand.end(), None);
    }

    #[test]
    fn a_cut_is_void_without_its_epoch_unless_it_is_the_last() {
        let cut = Cut::full(Epoch(4));
        assert!(!at_hand(cut).is_void_without(Epoch(3)));
        assert!(at_hand(cut).is_void_without(Epoch(4)));
        let last = Cut {
            is_last: true,
            ..cut
        };
        assert!(!at_hand(last).is_void_without(Epoch(4)));
    }

    #[test]
    fn what_could_not_be_put_aside_keeps_the_cut_from_being_written() {
        let mut hand = at_hand(Cut::full(Epoch(1)));
        hand.put_aside(|_| Err(Error::new(ErrorCode::LimitReached, "too large")));
        let mut chunk = StateChunk::default();
        let written = hand.write_aside(&mut CutWriter::new(&mut chunk, usize::MAX));
        assert_eq!(written.unwrap_err().code(), ErrorCode::LimitReached);
    }
}
