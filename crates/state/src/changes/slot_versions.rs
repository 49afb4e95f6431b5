//! The generations in which keys were created and removed, for snapshots.

use ardea_core::Progress;

use crate::PLACES_PER_CALL;
use crate::changes::Changes;

/// The changes since the last commit, and the generation in which each key was created. A removed
/// key that is in no snapshot is dropped at once; otherwise it is dropped when no valid snapshot
/// contains it.
#[derive(Debug, Default)]
pub struct SlotVersions {
    pub(crate) changes: Changes,
    /// Slot information by slot.
    infos: Vec<SlotInfo>,
    /// The slots of removed keys that need a tombstone, and some slots that were reused since.
    tombstones: Vec<u32>,
    /// The progress of the current scan of `tombstones`.
    looked_at: Option<usize>,
}

/// Information about the key at a slot, apart from its state.
#[derive(Clone, Copy, Default, Debug)]
struct SlotInfo {
    /// The generation in which the key was created; zero if before a restore.
    born: u32,
    /// The generation in which the slot was last listed as changed.
    noted: u32,
    is_tombstone: bool,
}

impl SlotVersions {
    /// Reserves room for `slots` more slots, if memory allows.
    pub(crate) fn reserve(&mut self, slots: usize) {
        let _ = self.infos.try_reserve(slots);
    }

    /// Sets the generation in which the key at a slot was created.
    pub(crate) fn begin(&mut self, slot: u32, born: u32) {
        let slot = slot as usize;
        if self.infos.len() <= slot {
            self.infos.resize(slot + 1, SlotInfo::default());
        }
        self.infos[slot].born = born;
    }

    /// Returns the generation in which the key at a slot was created.
    pub(crate) fn born(&self, slot: u32) -> u32 {
        self.infos.get(slot as usize).map_or(0, |life| life.born)
    }

    /// Records a change of a slot, once per generation.
    pub(crate) fn note(&mut self, slot: u32, generation: u32) {
        if let Some(life) = self.infos.get_mut(slot as usize)
            && life.noted != generation
        {
            life.noted = generation;
            self.changes.note(slot);
        }
    }

    /// Records that the key at a slot was removed in generation `gone`. Returns true if a tombstone
    /// is needed: the slot is then not freed yet.
    pub(crate) fn remove(&mut self, slot: u32, gone: u32) -> bool {
        let Some(life) = self.infos.get_mut(slot as usize) else {
            return false;
        };
        if !self.changes.is_known(life.born, gone) {
            return false;
        }
        if !std::mem::replace(&mut life.is_tombstone, true) {
            self.tombstones.push(slot);
        }
        true
    }

    /// Checks some removed keys after a commit or abort. Returns the slots that are free now, and
    /// whether all were checked. `gone` returns the generation in which the key at a slot was
    /// removed, if the slot still holds a removed key.
    pub(crate) fn free_tombstones(
        &mut self,
        gone: impl Fn(u32) -> Option<u32>,
    ) -> (Vec<u32>, Progress) {
        let mut free = Vec::new();
        let mut at = self.looked_at.take().unwrap_or(0);
        for _ in 0..PLACES_PER_CALL {
            let Some(&slot) = self.tombstones.get(at) else {
                return (free, Progress::DONE);
            };
            let life = &mut self.infos[slot as usize];
            let gone = gone(slot);
            if gone.is_some_and(|gone| self.changes.is_known(life.born, gone)) {
                at += 1;
                continue;
            }
            life.is_tombstone = false;
            self.tombstones.swap_remove(at);
            free.extend(gone.map(|_| slot));
        }
        self.looked_at = Some(at);
        (free, Progress::MADE)
    }
}
