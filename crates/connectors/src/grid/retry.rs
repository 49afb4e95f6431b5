//! Retry of map operations while the map is unavailable.

use std::io::Write;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

/// Retry delay.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Retry state of a map. Logs the beginning and the end of an outage once each.
#[derive(Debug, Default)]
pub(crate) struct RetryUntilAvailable {
    is_away: bool,
}

impl RetryUntilAvailable {
    /// Returns the value of a map operation; `None` if it must be retried.
    ///
    /// # Errors
    /// Errors that a retry cannot fix.
    pub fn judge<T>(&mut self, map: &str, outcome: Result<T>) -> Result<Option<T>> {
        self.judge_by(passes, map, outcome)
    }

    /// Like [`judge`](Self::judge), but retries the errors for which `passes` returns true.
    ///
    /// # Errors
    /// All other errors.
    pub fn judge_by<T>(
        &mut self,
        passes: impl Fn(&Error) -> bool,
        map: &str,
        outcome: Result<T>,
    ) -> Result<Option<T>> {
        match outcome {
            Ok(value) => {
                if std::mem::take(&mut self.is_away) {
                    say(map, "it can be used again");
                }
                Ok(Some(value))
            }
            Err(error) if passes(&error) => {
                if !std::mem::replace(&mut self.is_away, true) {
                    say(map, &format!("waiting: {error}"));
                }
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

fn say(map: &str, what: &str) {
    // A closed standard error cannot be reported anywhere.
    let _ = writeln!(std::io::stderr().lock(), "ardea: map {map}: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_waited_for_and_all_else_is_an_error() {
        let mut patience = RetryUntilAvailable::default();
        let away = || Error::new(ErrorCode::StateUnavailable, "no majority");
        assert_eq!(patience.judge("m", Err::<u8, _>(away())).unwrap(), None);
        assert!(patience.is_away);
        assert_eq!(patience.judge("m", Ok(7)).unwrap(), Some(7));
        assert!(!patience.is_away);
        let full = Error::new(ErrorCode::LimitReached, "full");
        assert!(patience.judge("m", Err::<u8, _>(full)).is_err());
    }
}
