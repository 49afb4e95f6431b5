//! Reports of outages of an object store.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Reports the beginning and the end of an outage, once each, on standard error.
#[derive(Debug, Default)]
pub(crate) struct OutageReporter {
    is_away: AtomicBool,
}

impl OutageReporter {
    /// Reports that the store at `place` does not answer, for this reason.
    pub fn is_away(&self, place: &str, reason: &str) {
        if !self.is_away.swap(true, Ordering::Relaxed) {
            // Standard error may be closed.
            let _ = writeln!(
                io::stderr().lock(),
                "ardea: {place} does not answer, and is waited for: {reason}"
            );
        }
    }

    /// Reports that the store at `place` answers.
    pub fn answers(&self, place: &str) {
        if self.is_away.load(Ordering::Relaxed) && self.is_away.swap(false, Ordering::Relaxed) {
            let _ = writeln!(io::stderr().lock(), "ardea: {place} answers again");
        }
    }
}
