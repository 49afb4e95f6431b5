//! Which keys have come and gone, as far as cuts have to know.

use ardea_core::Progress;

use crate::keyed::changes::Changes;
use crate::keyed::states::PLACES_PER_CALL;

/// What has changed since the last commit, and since when each key has been there: so a key that no cut knows of, when it is removed, is
/// forgotten at once, and one that a cut knows of as soon as none that counts does.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    pub(super) changes: Changes,
    /// By slot.
    lives: Vec<Life>,
    /// The slots of keys that were removed and have to be told of, and some that have been used again since.
    graves: Vec<u32>,
    /// How far the graves have been looked at, where that is under way.
    looked_at: Option<usize>,
}

/// What there is to know of the key at a slot, besides its state.
#[derive(Clone, Copy, Default, Debug)]
struct Life {
    /// The generation in which it came; zero if that was in another life of the job.
    born: u32,
    /// The generation in which it was noted last that the slot has changed.
    noted: u32,
    is_buried: bool,
}

impl Lives {
    /// Makes room for so many slots more, if there is memory.
    pub(super) fn reserve(&mut self, slots: usize) {
        let _ = self.lives.try_reserve(slots);
    }

    /// A key has come to a slot, in this generation.
    pub(super) fn begin(&mut self, slot: u32, born: u32) {
        let slot = slot as usize;
        if self.lives.len() <= slot {
            self.lives.resize(slot + 1, Life::default());
        }
        self.lives[slot].born = born;
    }

    /// When the key at a slot came.
    pub(super) fn born(&self, slot: u32) -> u32 {
        self.lives.get(slot as usize).map_or(0, |life| life.born)
    }

    /// A slot has changed; noted once in each generation.
    pub(super) fn note(&mut self, slot: u32, generation: u32) {
        if let Some(life) = self.lives.get_mut(slot as usize)
            && life.noted != generation
        {
            life.noted = generation;
            self.changes.note(slot);
        }
    }

    /// The key at a slot was removed in this generation: whether cuts have to say so, so that the slot stays its own until then.
    pub(super) fn bury(&mut self, slot: u32, gone: u32) -> bool {
        let Some(life) = self.lives.get_mut(slot as usize) else {
            return false;
        };
        if !self.changes.is_known(life.born, gone) {
            return false;
        }
        if !std::mem::replace(&mut life.is_buried, true) {
            self.graves.push(slot);
        }
        true
    }

    /// Looks at some graves after a decision: those that are free now, and whether all have been looked at. `gone` says in which generation
    /// the key at a slot was removed, if the slot is a grave still.
    pub(super) fn free_graves(
        &mut self,
        gone: impl Fn(u32) -> Option<u32>,
    ) -> (Vec<u32>, Progress) {
        let mut free = Vec::new();
        let mut at = self.looked_at.take().unwrap_or(0);
        for _ in 0..PLACES_PER_CALL {
            let Some(&slot) = self.graves.get(at) else {
                return (free, Progress::DONE);
            };
            let life = &mut self.lives[slot as usize];
            let gone = gone(slot);
            if gone.is_some_and(|gone| self.changes.is_known(life.born, gone)) {
                at += 1;
                continue;
            }
            life.is_buried = false;
            self.graves.swap_remove(at);
            free.extend(gone.map(|_| slot));
        }
        self.looked_at = Some(at);
        (free, Progress::MADE)
    }
}
