//! Tracking of an epoch whose outcome is pending.

use std::time::Duration;

use crate::Epoch;

/// Maximum wait for the outcome of an epoch. An epoch without outcome for longer has usually been
/// aborted, perhaps without a notification.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The latest epoch with a snapshot of this instance and no outcome yet. For sinks that hold output
/// until its epoch is committed: such a sink waits for room only while a commit may come.
///
/// ```
/// use std::time::Duration;
/// use ardea_core::{Epoch, PendingCommit};
///
/// let mut undecided = PendingCommit::default();
/// let now = Duration::from_secs(7);
/// undecided.begin(Epoch(1), now);
/// assert!(undecided.is_pending(now));
/// undecided.decide(Epoch(1));
/// assert!(!undecided.is_pending(now));
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct PendingCommit {
    /// The epoch, and the time of its snapshot.
    latest: Option<(Epoch, Duration)>,
}

impl PendingCommit {
    /// Records a snapshot of this epoch, at a time of the instance's clock.
    pub fn begin(&mut self, epoch: Epoch, now: Duration) {
        self.latest = Some((epoch, now));
    }

    /// Records the outcome of this epoch, and so of all earlier ones.
    pub fn decide(&mut self, epoch: Epoch) {
        if self.latest.is_some_and(|(latest, _)| latest <= epoch) {
            self.latest = None;
        }
    }

    /// Returns true if, at the time `now`, the outcome of an epoch is still expected.
    pub fn is_pending(&self, now: Duration) -> bool {
        self.latest
            .is_some_and(|(_, since)| now.saturating_sub(since) < TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_awaited_until_it_or_a_later_one_is_decided_and_not_for_ever() {
        let mut undecided = PendingCommit::default();
        let now = Duration::from_secs(1);
        assert!(!undecided.is_pending(now));
        undecided.begin(Epoch(1), now);
        undecided.begin(Epoch(2), now);
        undecided.decide(Epoch(1));
        assert!(undecided.is_pending(now), "the second is not decided");
        undecided.decide(Epoch(3));
        assert!(!undecided.is_pending(now));
        undecided.begin(Epoch(4), now);
        assert!(!undecided.is_pending(now + TIMEOUT));
    }
}
