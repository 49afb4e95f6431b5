//! What is done when something of what was saved may be lost: all of it is handed over anew, as long as those live who remember it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::Epoch;
use ardea_grid::cluster::{Losses, Shelter};

/// What was told last in a container, over all lives of its job there, and whether all was wanted for it: instances may go on from one life to the next with
/// what they have in memory, and then nobody reads, and misses, what was lost in between.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Arc<Mutex<Option<(Losses, bool)>>>);

impl Heard {
    /// What was told last; this, if nothing was yet.
    fn last_or(&self, now: Losses) -> (Losses, bool) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last.get_or_insert((now, false))
    }

    fn note(&self, losses: Losses, wants_all: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((losses, wants_all));
    }
}

/// Who tells a job of losses, what the job is called there, and what is done about them.
pub(crate) type Watched = (Arc<dyn Shelter>, String, Losing);

/// Whether all has to be handed over anew, in one life of a job in a container.
#[derive(Debug)]
pub(crate) struct Losing {
    heard: Heard,
    /// What was told last.
    seen: Losses,
    /// Whether a life before has noticed a loss, and all is still wanted for it.
    is_due: bool,
    /// The vertices that have instances here.
    vertices: BTreeSet<String>,
    /// The epoch at whose end a loss was noticed: what is saved for later ones counts.
    noticed: Option<Epoch>,
    /// Later epochs for which all was saved.
    whole: BTreeSet<Epoch>,
}

impl Losing {
    /// For a life that begins. Nothing has been lost since this was told, of what it reads; these vertices have instances here. What they don't read
    /// may have been lost since something was [heard](Heard) last.
    pub(crate) fn new(now: Losses, vertices: BTreeSet<String>, heard: &Heard) -> Self {
        let (seen, is_due) = heard.last_or(now);
        Losing {
            heard: heard.clone(),
            seen,
            is_due,
            vertices,
            noticed: None,
            whole: BTreeSet::new(),
        }
    }

    /// What is told at the end of an epoch: which vertices are to hand over all that they have from now on, if that has changed.
    pub(crate) fn told(&mut self, epoch: Epoch, losses: Losses) -> Option<BTreeSet<String>> {
        if losses == self.seen && !self.is_due {
            return None;
        }
        (self.seen, self.is_due) = (losses, false);
        self.heard.note(losses, true);
        self.noticed = Some(epoch);
        self.whole.clear();
        Some(self.vertices.clone())
    }

    /// Something was saved for an epoch; whether it is all that instances here have.
    pub(crate) fn saved(&mut self, epoch: Epoch, is_all: bool) {
        if is_all && self.noticed.is_some_and(|noticed| epoch > noticed) {
            self.whole.insert(epoch);
        }
    }

    /// An epoch is committed: whether nothing is wanted any more that was.
    pub(crate) fn committed(&mut self, epoch: Epoch) -> bool {
        let is_healed = self.whole.contains(&epoch);
        self.whole = self.whole.split_off(&epoch.next());
        if is_healed {
            self.heard.note(self.seen, false);
            self.noticed = None;
            self.whole.clear();
        }
        is_healed
    }

    /// Whether all is wanted.
    pub(crate) fn wants_all(&self) -> bool {
        self.noticed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(parts: u64) -> Losses {
        Losses { grid: 1, parts }
    }

    #[test]
    fn after_a_loss_all_is_wanted_until_an_epoch_is_committed_that_has_all() {
        let vertices = BTreeSet::from(["count".to_string()]);
        let mut losing = Losing::new(losses(0), vertices.clone(), &Heard::default());
        assert_eq!(losing.told(Epoch(1), losses(0)), None);
        losing.saved(Epoch(1), true);
        assert!(!losing.committed(Epoch(1)) && !losing.wants_all());

        assert_eq!(losing.told(Epoch(2), losses(3)), Some(vertices));
        assert_eq!(losing.told(Epoch(3), losses(3)), None);
        // What was written before anybody knew may be lost as well.
        losing.saved(Epoch(2), true);
        losing.saved(Epoch(3), false);
        losing.saved(Epoch(4), true);
        assert!(!losing.committed(Epoch(2)) && losing.wants_all());
        assert!(!losing.committed(Epoch(3)) && losing.wants_all());
        assert!(losing.committed(Epoch(4)) && !losing.wants_all());
    }

    #[test]
    fn another_loss_begins_it_anew() {
        let mut losing = Losing::new(losses(0), BTreeSet::new(), &Heard::default());
        assert!(losing.told(Epoch(1), losses(1)).is_some());
        losing.saved(Epoch(2), true);
        assert!(losing.told(Epoch(2), losses(2)).is_some());
        assert!(!losing.committed(Epoch(2)) && losing.wants_all());
    }

    #[test]
    fn what_is_lost_between_two_lives_is_noticed_by_the_next_one() {
        let heard = Heard::default();
        let new = |now| Losing::new(losses(now), BTreeSet::new(), &heard);
        let mut first = new(0);
        assert!(first.told(Epoch(1), losses(0)).is_none());
        // Nothing is read by those who go on with what they have in memory.
        let mut second = new(1);
        assert!(second.told(Epoch(2), losses(1)).is_some());
        // It ends before all was handed over.
        let mut third = new(1);
        assert!(third.told(Epoch(3), losses(1)).is_some());
        assert!(third.told(Epoch(4), losses(1)).is_none());
        third.saved(Epoch(4), true);
        assert!(third.committed(Epoch(4)));
        assert!(new(1).told(Epoch(5), losses(1)).is_none());
    }
}
