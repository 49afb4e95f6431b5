//! What a worker tells those who read its log.

use std::io::Write;

use ardea_core::{Clock, Timestamp};

/// Writes lines to standard error, each with the time and who writes it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    who: String,
    clock: Clock,
}

impl Notes {
    pub(crate) fn new(who: impl Into<String>, clock: Clock) -> Self {
        Notes {
            who: who.into(),
            clock,
        }
    }

    /// Writes a line. A log that can't be written to keeps nobody from working.
    pub(crate) fn say(&self, what: impl std::fmt::Display) {
        let line = format!("{} {}: {what}\n", moment(self.clock.wall()), self.who);
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// A moment as `ardea describe` tells it, in UTC: `2013-01-01 10:00:00.250`.
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
