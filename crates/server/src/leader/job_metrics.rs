//! The metrics of a job that its workers have reported to the leader within the last hour.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::Timestamp;
use ardea_metrics::{Batch, History, HistoryConfig};

use crate::leader::clock::now_ms;

/// The last hour of a job's metrics since its leader was elected. Cheap to clone.
#[derive(Clone)]
pub struct JobMetrics(Arc<MetricsHistory>);

struct MetricsHistory {
    history: Mutex<History>,
    broken: AtomicU64,
}

impl JobMetrics {
    pub(crate) fn new() -> Self {
        JobMetrics(Arc::new(MetricsHistory {
            history: Mutex::new(empty()),
            broken: AtomicU64::new(0),
        }))
    }

    /// Adds a worker's batch; an undecodable batch is counted and dropped.
    pub(crate) fn take(&self, batch: &[u8]) {
        match Batch::decode(batch) {
            Ok(batch) => {
                let history = self.0.history.lock();
                let mut history = history.unwrap_or_else(PoisonError::into_inner);
                history.take(&batch, now());
            }
            Err(_) => {
                self.0.broken.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Adds a batch of the leader's own metrics.
    pub(crate) fn take_own(&self, batch: &Batch) {
        let history = self.0.history.lock();
        let mut history = history.unwrap_or_else(PoisonError::into_inner);
        history.take(batch, now());
    }

    /// Removes all metrics.
    pub(crate) fn clear(&self) {
        let history = self.0.history.lock();
        *history.unwrap_or_else(PoisonError::into_inner) = empty();
        self.0.broken.store(0, Ordering::Relaxed);
    }

    /// Runs a query on the metrics history. Incoming batches wait until the query ends.
    pub fn ask<T>(&self, question: impl FnOnce(&History) -> T) -> T {
        let history = self.0.history.lock();
        question(&history.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of metrics batches that could not be decoded.
    pub fn broken_batches(&self) -> u64 {
        self.0.broken.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for JobMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JobMetrics({:?})", self.ask(History::report))
    }
}

fn empty() -> History {
    History::new(HistoryConfig::default(), now())
}

pub(crate) fn now() -> Timestamp {
    let micros = now_ms().saturating_mul(1_000);
    Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}
