//! The failure of an execution attempt, and the detection of repeated failures despite committed
//! epochs.

use std::time::Duration;

use ardea_core::Error;
use serde::{Deserialize, Serialize};

/// The maximum time between two failures that count as repeats. The failure of an attempt that
/// lasted longer counts as a new one.
const REPEATS_WITHIN: Duration = Duration::from_secs(120);

/// The failure of an execution attempt, with the facts that decide whether the job is restarted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AttemptFailure {
    /// The error message.
    pub reason: String,
    /// The failed vertex and the error code, if the vertex had processed no record in this attempt.
    /// Two failures with the same signature are repeats even if an epoch was committed in between,
    /// since the failing vertex made no progress.
    pub signature: Option<String>,
    /// True if every further attempt would fail in the same way until the user changes something:
    /// see [`Error::is_permanent`].
    pub is_permanent: bool,
}

impl AttemptFailure {
    /// Creates a failure that is not permanent and has no signature.
    pub fn transient(reason: impl Into<String>) -> Self {
        AttemptFailure {
            reason: reason.into(),
            signature: None,
            is_permanent: false,
        }
    }

    /// Creates the failure of an instance. `processed` returns the number of records that the
    /// instances of a vertex have processed in this attempt, or `None` if it is unknown.
    pub fn of(error: &Error, processed: impl FnOnce(&str) -> Option<u64>) -> Self {
        let vertex = error.vertex().map(|(vertex, _)| vertex);
        let stuck = vertex.filter(|vertex| processed(vertex) == Some(0));
        AttemptFailure {
            reason: error.to_string(),
            signature: stuck.map(|vertex| format!("{vertex} {}", error.code().as_str())),
            is_permanent: error.is_permanent(),
        }
    }
}

/// Counter of consecutive failures with the same signature.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    signature: Option<String>,
    count: u32,
    last: Duration,
}

impl Repeats {
    /// Counts a failure at `now`. Returns the number of consecutive failures with this signature;
    /// zero if `signature` is `None`.
    pub(super) fn count(&mut self, now: Duration, signature: Option<String>) -> u32 {
        let is_repeat = signature.is_some()
            && signature == self.signature
            && now.saturating_sub(self.last) <= REPEATS_WITHIN;
        self.count = match (&signature, is_repeat) {
            (None, _) => 0,
            (Some(_), true) => self.count.saturating_add(1),
            (Some(_), false) => 1,
        };
        (self.signature, self.last) = (signature, now);
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::ErrorCode;

    #[test]
    fn a_failure_has_a_signature_only_if_its_vertex_has_processed_nothing() {
        let error = Error::new(ErrorCode::ReadFailed, "no topic").in_vertex("kafka", 1);
        let signature = |processed| AttemptFailure::of(&error, |_| processed).signature;
        assert_eq!(signature(Some(0)).as_deref(), Some("kafka ARD-301"));
        assert_eq!(signature(Some(1)), None);
        assert_eq!(signature(None), None);
        let nowhere = Error::new(ErrorCode::ReadFailed, "no topic");
        assert_eq!(AttemptFailure::of(&nowhere, |_| Some(0)).signature, None);
    }

    #[test]
    fn failures_repeat_by_signature_and_within_the_window() {
        let mut repeats = Repeats::default();
        let mut count = |at: u64, signature: Option<&str>| {
            repeats.count(Duration::from_secs(at), signature.map(String::from))
        };
        assert_eq!(count(0, Some("a")), 1);
        assert_eq!(count(120, Some("a")), 2);
        assert_eq!(count(241, Some("a")), 1);
        assert_eq!(count(242, Some("b")), 1);
        assert_eq!(count(243, None), 0);
        assert_eq!(count(244, Some("b")), 1);
    }
}
