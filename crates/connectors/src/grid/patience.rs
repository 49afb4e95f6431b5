//! Waiting for a map that can't be used at the moment.

use std::io::Write;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

/// After how long what failed is tried again.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);

/// Waits for a map that can't be used at the moment, and says so once.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    is_away: bool,
}

impl Patience {
    /// What came of using the map; none if it has to be tried again.
    ///
    /// # Errors
    /// What trying again would not mend.
    pub fn judge<T>(&mut self, map: &str, outcome: Result<T>) -> Result<Option<T>> {
        self.judge_by(passes, map, outcome)
    }

    /// The same, where `passes` says what is waited for.
    ///
    /// # Errors
    /// All else.
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
        ErrorCode::StateUnavailable | ErrorCode::StateUnknown
    )
}

fn say(map: &str, what: &str) {
    // Nobody is left to be told that standard error is closed.
    let _ = writeln!(std::io::stderr().lock(), "ardea: map {map}: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_waited_for_and_all_else_is_an_error() {
        let mut patience = Patience::default();
        let away = || Error::new(ErrorCode::StateUnavailable, "no majority");
        assert_eq!(patience.judge("m", Err::<u8, _>(away())).unwrap(), None);
        assert!(patience.is_away);
        assert_eq!(patience.judge("m", Ok(7)).unwrap(), Some(7));
        assert!(!patience.is_away);
        let full = Error::new(ErrorCode::LimitReached, "full");
        assert!(patience.judge("m", Err::<u8, _>(full)).is_err());
    }
}
