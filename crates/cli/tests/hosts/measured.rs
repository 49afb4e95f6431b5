//! Durations measured during the tests: printed, but not checked.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Durations in milliseconds, by their subject.
#[derive(Clone, Debug, Default)]
pub struct Measured(BTreeMap<&'static str, Vec<u64>>);

impl Measured {
    /// Adds the duration between two moments, in milliseconds since 1970.
    pub fn note(&mut self, what: &'static str, from_ms: u64, until_ms: u64) {
        let took = until_ms.saturating_sub(from_ms);
        self.0.entry(what).or_default().push(took);
    }

    /// Prints all durations.
    pub fn print(&self, kind: &str) {
        for (what, times) in &self.0 {
            let times: Vec<String> = times.iter().map(u64::to_string).collect();
            println!("{kind}: {what}: {} ms", times.join(", "));
        }
    }
}

/// Returns the current time in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
