//! Whether somebody is about to hear what came of an epoch.

use std::time::Duration;

use crate::Epoch;

/// How long it is believed that what comes of an epoch will be told: an epoch that takes longer has been given up as a rule, and it may be that
/// nobody says so.
const PATIENCE: Duration = Duration::from_secs(300);

/// The latest epoch of which a cut was taken, until it is told what came of it. For sinks that hold output until its epoch is committed: while the commit may come they
/// can wait for the room that it makes, and else they can't.
///
/// ```
/// use std::time::Duration;
/// use ardea_core::{Epoch, Undecided};
///
/// let mut undecided = Undecided::default();
/// let now = Duration::from_secs(7);
/// undecided.begin(Epoch(1), now);
/// assert!(undecided.is_awaited(now));
/// undecided.decide(Epoch(1));
/// assert!(!undecided.is_awaited(now));
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Undecided {
    /// With when its cut was taken.
    latest: Option<(Epoch, Duration)>,
}

impl Undecided {
    /// A cut of this epoch is taken, at a time of the instance's clock.
    pub fn begin(&mut self, epoch: Epoch, now: Duration) {
        self.latest = Some((epoch, now));
    }

    /// It is told what came of this epoch, and so of all before it.
    pub fn decide(&mut self, epoch: Epoch) {
        if self.latest.is_some_and(|(latest, _)| latest <= epoch) {
            self.latest = None;
        }
    }

    /// Whether it will be told yet what came of an epoch.
    pub fn is_awaited(&self, now: Duration) -> bool {
        self.latest
            .is_some_and(|(_, since)| now.saturating_sub(since) < PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_awaited_until_it_or_a_later_one_is_decided_and_not_for_ever() {
        let mut undecided = Undecided::default();
        let now = Duration::from_secs(1);
        assert!(!undecided.is_awaited(now));
        undecided.begin(Epoch(1), now);
        undecided.begin(Epoch(2), now);
        undecided.decide(Epoch(1));
        assert!(undecided.is_awaited(now), "the second is not decided");
        undecided.decide(Epoch(3));
        assert!(!undecided.is_awaited(now));
        undecided.begin(Epoch(4), now);
        assert!(!undecided.is_awaited(now + PATIENCE));
    }
}
