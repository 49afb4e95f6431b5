//! Monitor for lost in-memory checkpoint data. After a loss, it requests full snapshots while the
//! instances still have the state.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::Epoch;
use ardea_grid::cluster::{GridStoreClient, LossCounters};

/// The loss counters last received in a container over all attempts of its job, and true if full
/// snapshots were requested for them. Instances can keep their state in memory for the next
/// attempt; then no read notices a loss between the attempts.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastLossCounters(Arc<Mutex<Option<(LossCounters, bool)>>>);

impl LastLossCounters {
    /// Returns the last counters, or `now` if there are none yet; and true if full snapshots were
    /// requested.
    fn last_or(&self, now: LossCounters) -> (LossCounters, bool) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last.get_or_insert((now, false))
    }

    fn note(&self, losses: LossCounters, wants_all: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((losses, wants_all));
    }
}

/// The client that requests loss counters from the grid, the key of the job in the grid, and the
/// monitor.
pub(crate) type LossSource = (Arc<dyn GridStoreClient>, String, LossMonitor);

/// Monitor that decides on full snapshots, for one attempt of a job in one container.
#[derive(Debug)]
pub(crate) struct LossMonitor {
    heard: LastLossCounters,
    /// The last counters received.
    seen: LossCounters,
    /// True if an earlier attempt noticed a loss, and full snapshots are still needed.
    is_due: bool,
    /// The vertices with instances in this container.
    vertices: BTreeSet<String>,
    /// The epoch at whose end a loss was noticed. Snapshots of later epochs repair it.
    noticed: Option<Epoch>,
    /// The epochs later than `noticed` whose snapshots here are all full.
    whole: BTreeSet<Epoch>,
}

impl LossMonitor {
    /// Creates the monitor of an attempt. The counters `now` were read before the state: a loss
    /// after that is noticed by the read of the state or by later counters. An earlier loss is
    /// noticed by comparison with the shared [`LastLossCounters`].
    pub(crate) fn new(
        now: LossCounters,
        vertices: BTreeSet<String>,
        heard: &LastLossCounters,
    ) -> Self {
        let (seen, is_due) = heard.last_or(now);
        LossMonitor {
            heard: heard.clone(),
            seen,
            is_due,
            vertices,
            noticed: None,
            whole: BTreeSet::new(),
        }
    }

    /// Handles the counters at the end of an epoch. Returns the vertices that must write full
    /// snapshots from now on, if that has changed.
    pub(crate) fn told(&mut self, epoch: Epoch, losses: LossCounters) -> Option<BTreeSet<String>> {
        if losses == self.seen && !self.is_due {
            return None;
        }
        (self.seen, self.is_due) = (losses, false);
        self.heard.note(losses, true);
        self.noticed = Some(epoch);
        self.whole.clear();
        Some(self.vertices.clone())
    }

    /// Records that the snapshots of an epoch are saved. `is_all` is true if all of them are full.
    pub(crate) fn saved(&mut self, epoch: Epoch, is_all: bool) {
        if is_all && self.noticed.is_some_and(|noticed| epoch > noticed) {
            self.whole.insert(epoch);
        }
    }

    /// Handles the commit of an epoch. Returns true if full snapshots are no longer needed from
    /// then on.
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

    /// Returns true if full snapshots are needed.
    pub(crate) fn wants_all(&self) -> bool {
        self.noticed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(parts: u64) -> LossCounters {
        LossCounters { grid: 1, parts }
    }

    #[test]
    fn after_a_loss_all_is_wanted_until_an_epoch_is_committed_that_has_all() {
        let vertices = BTreeSet::from(["count".to_string()]);
        let mut losing =
            LossMonitor::new(losses(0), vertices.clone(), &LastLossCounters::default());
        assert_eq!(losing.told(Epoch(1), losses(0)), None);
        losing.saved(Epoch(1), true);
        assert!(!losing.committed(Epoch(1)) && !losing.wants_all());

        assert_eq!(losing.told(Epoch(2), losses(3)), Some(vertices));
        assert_eq!(losing.told(Epoch(3), losses(3)), None);
        // Data written before the loss was noticed may be lost as well.
        losing.saved(Epoch(2), true);
        losing.saved(Epoch(3), false);
        losing.saved(Epoch(4), true);
        assert!(!losing.committed(Epoch(2)) && losing.wants_all());
        assert!(!losing.committed(Epoch(3)) && losing.wants_all());
        assert!(losing.committed(Epoch(4)) && !losing.wants_all());
    }

    #[test]
    fn another_loss_begins_it_anew() {
        let mut losing = LossMonitor::new(losses(0), BTreeSet::new(), &LastLossCounters::default());
        assert!(losing.told(Epoch(1), losses(1)).is_some());
        losing.saved(Epoch(2), true);
        assert!(losing.told(Epoch(2), losses(2)).is_some());
        assert!(!losing.committed(Epoch(2)) && losing.wants_all());
    }

    #[test]
    fn what_is_lost_between_two_lives_is_noticed_by_the_next_one() {
        let heard = LastLossCounters::default();
        let new = |now| LossMonitor::new(losses(now), BTreeSet::new(), &heard);
        let mut first = new(0);
        assert!(first.told(Epoch(1), losses(0)).is_none());
        // Instances that keep their state in memory read nothing.
        let mut second = new(1);
        assert!(second.told(Epoch(2), losses(1)).is_some());
        // The attempt ends before all full snapshots are committed.
        let mut third = new(1);
        assert!(third.told(Epoch(3), losses(1)).is_some());
        assert!(third.told(Epoch(4), losses(1)).is_none());
        third.saved(Epoch(4), true);
        assert!(third.committed(Epoch(4)));
        assert!(new(1).told(Epoch(5), losses(1)).is_none());
    }
}
