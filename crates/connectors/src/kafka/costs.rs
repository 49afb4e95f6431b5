//! Where the cpu time of a source goes, for whoever wants to know.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Cpu time that the instances of a source have spent on their own threads, measured a chunk at a time. librdkafka's threads, which fetch
/// and unpack, come on top.
#[derive(Debug, Default)]
pub struct SourceCosts {
    fetch: AtomicU64,
    decode: AtomicU64,
    records: AtomicU64,
}

impl SourceCosts {
    /// Spent on taking messages from librdkafka, and on giving them back.
    pub fn fetch(&self) -> Duration {
        Duration::from_nanos(self.fetch.load(Ordering::Relaxed))
    }

    /// Spent in the decoder, and on laying its records into the chunk.
    pub fn decode(&self) -> Duration {
        Duration::from_nanos(self.decode.load(Ordering::Relaxed))
    }

    /// How many messages were taken.
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
