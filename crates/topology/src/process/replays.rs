//! The failed messages of a spout's process that it may still have to emit again.

/// The failed messages since the answers of a spout's process that may have replayed them.
///
/// A spout that drains is asked until none is left. The process does not say which tuples are
/// replays, so each emitted tuple counts as one.
#[derive(Debug, Default)]
pub(super) struct Replays {
    /// Failed messages that no answer has covered.
    failed: u32,
    /// The part of them that had failed before the request in flight.
    requested: u32,
    /// The tuples of the present answer so far.
    answered: u32,
}

impl Replays {
    /// Counts a failed message.
    pub(super) fn on_failure(&mut self) {
        self.failed = self.failed.saturating_add(1);
    }

    /// Notes a request for tuples.
    pub(super) fn on_request(&mut self) {
        (self.requested, self.answered) = (self.failed, 0);
    }

    /// Counts tuples of the answer.
    pub(super) fn on_tuples(&mut self, count: u32) {
        self.answered = self.answered.saturating_add(count);
    }

    /// Completes the answer. `is_exhausted` is true if the process has no more tuples at present.
    pub(super) fn on_answer(&mut self, is_exhausted: bool) {
        let covered = match is_exhausted || self.answered == 0 {
            true => self.requested,
            false => self.requested.min(self.answered),
        };
        self.failed = self.failed.saturating_sub(covered);
    }

    /// Notes the end of the process, which had all messages that it would replay.
    pub(super) fn on_restart(&mut self) {
        *self = Replays::default();
    }

    /// Returns the number of messages that may still be replayed.
    pub(super) fn left(&self) -> u32 {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(count: u32) -> Replays {
        let mut replays = Replays::default();
        (0..count).for_each(|_| replays.on_failure());
        replays
    }

    #[test]
    fn an_answer_with_fewer_tuples_than_failures_leaves_the_rest() {
        let mut replays = failed(5);
        replays.on_request();
        replays.on_tuples(2);
        assert_eq!(replays.left(), 5, "not before the end of the answer");
        replays.on_answer(false);
        assert_eq!(replays.left(), 3);
    }

    #[test]
    fn a_failure_after_the_request_is_not_covered_by_its_answer() {
        let mut replays = failed(1);
        replays.on_request();
        replays.on_failure();
        replays.on_tuples(9);
        replays.on_answer(true);
        assert_eq!(replays.left(), 1);
    }

    #[test]
    fn a_process_that_replays_nothing_is_not_asked_again() {
        for is_exhausted in [true, false] {
            let mut replays = failed(5);
            replays.on_request();
            replays.on_answer(is_exhausted);
            assert_eq!(replays.left(), 0);
        }
    }
}
