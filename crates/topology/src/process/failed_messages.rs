//! The failed messages of a spout's process that it may still have to emit again.

/// The failed messages since the answers of a spout's process that may have replayed them.
///
/// A spout that drains is asked until none is left. The process does not say which tuples are
/// replays, so each emitted tuple counts as one.
#[derive(Debug, Default)]
pub(super) struct FailedMessages {
    /// Failed messages that no answer has covered.
    failed: u32,
    /// The part of them that had failed before the request in flight.
    requested: u32,
    /// The tuples of the present answer so far.
    answered: u32,
}

impl FailedMessages {
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
        *self = FailedMessages::default();
    }

    /// Returns the number of messages that may still be replayed.
    pub(super) fn left(&self) -> u32 {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(count: u32) -> FailedMessages {
        let mut messages = FailedMessages::default();
        (0..count).for_each(|_| messages.on_failure());
        messages
    }

    #[test]
    fn an_answer_with_fewer_tuples_than_failures_leaves_the_rest() {
        let mut messages = failed(5);
        messages.on_request();
        messages.on_tuples(2);
        assert_eq!(messages.left(), 5, "not before the end of the answer");
        messages.on_answer(false);
        assert_eq!(messages.left(), 3);
    }

    #[test]
    fn a_failure_after_the_request_is_not_covered_by_its_answer() {
        let mut messages = failed(1);
        messages.on_request();
        messages.on_failure();
        messages.on_tuples(9);
        messages.on_answer(true);
        assert_eq!(messages.left(), 1);
    }

    #[test]
    fn a_process_that_replays_nothing_is_not_asked_again() {
        for is_exhausted in [true, false] {
            let mut messages = failed(5);
            messages.on_request();
            messages.on_answer(is_exhausted);
            assert_eq!(messages.left(), 0);
        }
    }
}
