//! CPU time accounting for a sink.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// CPU time that the instances of a sink spend on encoding, measured per chunk. It excludes the
/// threads `redis-writer`, which send commands and read responses.
#[derive(Debug, Default)]
pub struct SinkCosts {
    encode: AtomicU64,
    records: AtomicU64,
}

impl SinkCosts {
    /// Returns the time spent on encoding records as commands.
    pub fn encode(&self) -> Duration {
        Duration::from_nanos(self.encode.load(Ordering::Relaxed))
    }

    /// Returns the number of records encoded.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, encode: Duration, records: usize) {
        let nanos = u64::try_from(encode.as_nanos()).unwrap_or(u64::MAX);
        self.encode.fetch_add(nanos, Ordering::Relaxed);
        self.records.fetch_add(records as u64, Ordering::Relaxed);
    }
}
