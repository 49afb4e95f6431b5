//! The log lines of a worker.

use std::io::Write;

use ardea_core::{Clock, Timestamp};

/// A writer of log lines to standard error. Each line contains the time and the writer's name.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LogWriter {
    who: String,
    clock: Clock,
}

impl LogWriter {
    pub(crate) fn new(who: impl Into<String>, clock: Clock) -> Self {
        LogWriter {
            who: who.into(),
            clock,
        }
    }

    /// Writes a line; errors are ignored.
    pub(crate) fn write(&self, what: impl std::fmt::Display) {
        let line = format!("{} {}: {what}\n", moment(self.clock.wall()), self.who);
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Formats a time in UTC as in the output of `ardea describe`: `2013-01-01 10:00:00.250`.
fn moment(at: Timestamp) -> String {
    let micros = at.as_micros();
    let second = Timestamp::from_micros(micros - micros.rem_euclid(1_000_000)).to_string();
    let second = second.trim_end_matches('Z').replace('T', " ");
    format!("{second}.{:03}", micros.rem_euclid(1_000_000) / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_with_its_date_and_three_decimals() {
        for (micros, told) in [
            (1_357_034_400_250_999, "2013-01-01 10:00:00.250"),
            (0, "1970-01-01 00:00:00.000"),
        ] {
            assert_eq!(moment(Timestamp::from_micros(micros)), told);
        }
    }
}
