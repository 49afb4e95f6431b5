//! Timers of a member.

use std::time::Duration;

use super::Node;
use crate::protocol::membership::ConsensusEvent;

impl Node {
    /// Processes the passage of time.
    pub(super) fn tick(&mut self, now: Duration) {
        self.council(now, ConsensusEvent::Tick);
        if self.is_out {
            return;
        }
        for partition in self.awake.take() {
            let replica = self.shared.replica(partition);
            if replica.is_some_and(|replica| !replica.rests()) {
                self.with(now, partition, |replica, out| replica.tick(now, out));
            }
        }
        let since = self
            .ticked
            .map_or(Duration::ZERO, |before| now.saturating_sub(before));
        self.ticked = Some(now);
        self.refill.earn(since);
        self.refill(now);
        for step in self.pending.tick(now) {
            self.try_it(now, Some(step));
        }
        self.forget_watchers(now);
        self.keep_watching(now);
    }
}
