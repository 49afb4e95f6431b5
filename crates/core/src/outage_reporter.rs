//! Reports of outages of external systems.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reporter that logs the beginning and the end of an outage of an external system, once each, on
/// standard error. Clones share the outage.
///
/// ```
/// use ardea_core::OutageReporter;
///
/// let server = OutageReporter::new("redis localhost:6379");
/// server.away("connection refused");
/// assert!(server.is_away());
/// server.answers();
/// assert!(!server.is_away());
/// ```
#[derive(Clone, Debug)]
pub struct OutageReporter {
    /// Prefix of log lines.
    system: Arc<str>,
    is_away: Arc<AtomicBool>,
}

impl OutageReporter {
    /// Creates the reporter of a system; `system` begins each log line.
    pub fn new(system: impl Into<Arc<str>>) -> Self {
        OutageReporter {
            system: system.into(),
            is_away: Arc::default(),
        }
    }

    /// Reports that the system does not answer, and the reason.
    pub fn away(&self, why: impl fmt::Display) {
        if !self.is_away.swap(true, Ordering::Relaxed) {
            self.log_line(format_args!(
                "it is unavailable ({why}); waiting until it answers"
            ));
        }
    }

    /// Reports that the system answers. Returns true if that ends an outage.
    #[inline]
    pub fn answers(&self) -> bool {
        // The store is rare, so that frequent answers share the cache line.
        let ends = self.is_away() && self.is_away.swap(false, Ordering::Relaxed);
        if ends {
            self.log_line("it answers again");
        }
        ends
    }

    /// Returns true if the system has not answered since an outage began.
    #[inline]
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// Logs a line about the system on standard error.
    pub fn log_line(&self, what: impl fmt::Display) {
        // A closed standard error cannot be reported anywhere.
        let _ = writeln!(std::io::stderr().lock(), "ardea: {}: {what}", self.system);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_an_outage_which_ends_once() {
        let reporter = OutageReporter::new("system");
        let other = reporter.clone();
        assert!(!other.answers());
        reporter.away("refused");
        assert!(other.is_away());
        assert!(other.answers() && !reporter.answers());
    }
}
