//! Where the cpu time of a sink goes, for whoever wants to know.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Cpu time that the instances of a sink have spent on encoding, measured a chunk at a time. Their threads `redis-writer`, which send and hear
/// the answers, come on top.
#[derive(Debug, Default)]
pub struct SinkCosts {
    encode: AtomicU64,
    records: AtomicU64,
}

impl SinkCosts {
    /// Spent on making commands of records.
    pub fn encode(&self) -> Duration {
        Duration::from_nanos(self.encode.load(Ordering::Relaxed))
    }

    /// Of how many records.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, encode: Duration, records: usize) {
        let nanos = u64::try_from(encode.as_nanos()).unwrap_or(u64::MAX);
        self.encode.fetch_add(nanos, Ordering::Relaxed);
        self.records.fetch_add(records as u64, Ordering::Relaxed);
    }
}
