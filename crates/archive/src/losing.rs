//! What is done when something of what was saved may be lost: all of it is handed over anew, as long as those live who remember it.

use std::collections::BTreeSet;

use ardea_core::Epoch;
use ardea_shelter::Losses;

/// Whether all has to be handed over anew, in one life of a job in a container.
#[derive(Debug)]
pub(crate) struct Losing {
    /// What was told last.
    seen: Losses,
    /// The vertices that have instances here.
    vertices: BTreeSet<String>,
    /// The epoch at whose end a loss was noticed: what is saved for later ones counts.
    noticed: Option<Epoch>,
    /// Later epochs for which all was saved.
    whole: BTreeSet<Epoch>,
}

impl Losing {
    /// Nothing has been lost since this was told; these vertices have instances here.
    pub(crate) fn new(seen: Losses, vertices: BTreeSet<String>) -> Self {
        Losing {
            seen,
            vertices,
            noticed: None,
            whole: BTreeSet::new(),
        }
    }

    /// What is told at the end of an epoch: which vertices are to hand over all that they have from now on, if that has changed.
    pub(crate) fn told(&mut self, epoch: Epoch, losses: Losses) -> Option<BTreeSet<String>> {
        if losses == self.seen {
            return None;
        }
        self.seen = losses;
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
        let mut losing = Losing::new(losses(0), vertices.clone());
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
        let mut losing = Losing::new(losses(0), BTreeSet::new());
        assert!(losing.told(Epoch(1), losses(1)).is_some());
        losing.saved(Epoch(2), true);
        assert!(losing.told(Epoch(2), losses(2)).is_some());
        assert!(!losing.committed(Epoch(2)) && losing.wants_all());
    }
}
