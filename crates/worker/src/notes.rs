//! What a worker tells those who read its log.

use std::io::Write;

use ardea_core::Clock;

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
        let micros = self.clock.wall().as_micros();
        let (seconds, millis) = (micros / 1_000_000, micros / 1_000 % 1_000);
        let line = format!("{seconds}.{millis:03} {}: {what}\n", self.who);
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
