//! Retry policy of aborted transactions.

use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode;

/// Maximum number of consecutive aborts.
const MOST: u32 = 10;
/// Initial and maximum delay before the next transaction.
const SOONEST: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(5);

/// Aborted transactions since the last commit.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Aborts {
    in_a_row: u32,
    not_before: Option<Instant>,
}

impl Aborts {
    /// Records an abort; returns false after more than [`MOST`] consecutive aborts.
    pub fn note(&mut self, now: Instant) -> bool {
        let wait = SOONEST.saturating_mul(1 << self.in_a_row.min(16));
        self.not_before = Some(now + wait.min(LATEST));
        self.in_a_row += 1;
        self.in_a_row <= MOST
    }

    /// Returns true if the next transaction may begin.
    pub fn may_begin(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|not_before| now >= not_before)
    }

    /// Resets the count after a committed transaction.
    pub fn forget(&mut self) {
        *self = Aborts::default();
    }
}

/// Returns true if a retry cannot fix the error of an aborted transaction and an administrator must
/// act.
pub(super) fn is_permanent(code: Option<RDKafkaErrorCode>) -> bool {
    matches!(
        code,
        Some(
            RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed
                | RDKafkaErrorCode::TransactionalIdAuthorizationFailed
                | RDKafkaErrorCode::InvalidTopic
                | RDKafkaErrorCode::InvalidRecord
                | RDKafkaErrorCode::MessageSizeTooLarge
                | RDKafkaErrorCode::PolicyViolation
                | RDKafkaErrorCode::SecurityDisabled
                | RDKafkaErrorCode::UnsupportedForMessageFormat
                | RDKafkaErrorCode::UnsupportedFeature
                | RDKafkaErrorCode::UnsupportedVersion
                | RDKafkaErrorCode::InvalidTransactionTimeout
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aborts_in_a_row_wait_longer_each_time_and_come_to_an_end() {
        let mut aborts = Aborts::default();
        let begun = Instant::now();
        assert!(aborts.may_begin(begun));
        assert!(aborts.note(begun));
        assert!(!aborts.may_begin(begun) && aborts.may_begin(begun + SOONEST));
        assert!(aborts.note(begun));
        assert!(!aborts.may_begin(begun + SOONEST));
        assert!(aborts.may_begin(begun + LATEST));
        assert!((2..MOST).all(|_| aborts.note(begun)));
        assert!(!aborts.note(begun), "one too many");
        assert!(aborts.may_begin(begun + LATEST));
        aborts.forget();
        assert!(aborts.may_begin(begun) && aborts.note(begun));
    }

    #[test]
    fn what_nobody_may_do_is_not_tried_again() {
        assert!(is_permanent(Some(
            RDKafkaErrorCode::TopicAuthorizationFailed
        )));
        assert!(!is_permanent(Some(RDKafkaErrorCode::NotCoordinator)));
        assert!(!is_permanent(None));
    }
}
