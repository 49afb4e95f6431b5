//! Retry of map operations while the map is unavailable.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, OutageReporter, Result};

/// Retry delay.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Retries of the operations of a map.
#[derive(Debug)]
pub(crate) struct RetryUntilAvailable(OutageReporter);

impl RetryUntilAvailable {
    /// Creates the retries of the map named `map`.
    pub fn new(map: &str) -> Self {
        RetryUntilAvailable(OutageReporter::new(format!("map {map}")))
    }

    /// Returns the value of a map operation; `None` if it must be retried.
    ///
    /// # Errors
    /// Errors that a retry cannot fix.
    pub fn judge<T>(&self, outcome: Result<T>) -> Result<Option<T>> {
        self.judge_by(passes, outcome)
    }

    /// Like [`judge`](Self::judge), but retries the errors for which `passes` returns true.
    ///
    /// # Errors
    /// All other errors.
    pub fn judge_by<T>(
        &self,
        passes: impl Fn(&Error) -> bool,
        outcome: Result<T>,
    ) -> Result<Option<T>> {
        match outcome {
            Ok(value) => {
                self.0.answers();
                Ok(Some(value))
            }
            Err(error) if passes(&error) => {
                self.0.away(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn passes(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::StateUnavailable | ErrorCode::OutcomeUnknown
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_waited_for_and_all_else_is_an_error() {
        let retry = RetryUntilAvailable::new("m");
        let away = || Error::new(ErrorCode::StateUnavailable, "no majority");
        assert_eq!(retry.judge(Err::<u8, _>(away())).unwrap(), None);
        assert!(retry.0.is_away());
        assert_eq!(retry.judge(Ok(7)).unwrap(), Some(7));
        assert!(!retry.0.is_away());
        let full = Error::new(ErrorCode::LimitReached, "full");
        assert!(retry.judge(Err::<u8, _>(full)).is_err());
    }
}
