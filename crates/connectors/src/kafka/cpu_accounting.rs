//! CPU time accounting for a source.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// CPU time that the instances of a source spend on their own threads, measured per chunk. It
/// excludes librdkafka's threads, which fetch and decompress.
#[derive(Debug, Default)]
pub struct SourceCosts {
    fetch: AtomicU64,
    decode: AtomicU64,
    records: AtomicU64,
}

impl SourceCosts {
    /// Returns the time spent on taking messages from librdkafka and returning their memory.
    pub fn fetch(&self) -> Duration {
        Duration::from_nanos(self.fetch.load(Ordering::Relaxed))
    }

    /// Returns the time spent in the decoder and on adding records to the chunk.
    pub fn decode(&self) -> Duration {
        Duration::from_nanos(self.decode.load(Ordering::Relaxed))
    }

    /// Returns the number of messages taken.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, fetch: Duration, decode: Duration, records: usize) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.fetch.fetch_add(nanos(fetch), Ordering::Relaxed);
        self.decode.fetch_add(nanos(decode), Ordering::Relaxed);
        self.records.fetch_add(records as u64, Ordering::Relaxed);
    }
}
