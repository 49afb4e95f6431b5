//! The last hour of a job's metrics, as its workers tell them to its master.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::Timestamp;
use ardea_metrics::{Batch, History, HistoryConfig};

use crate::leader::clock::now_ms;

/// The last hour of a job's metrics, since its master leads. Cheap to clone.
#[derive(Clone)]
pub struct JobMetrics(Arc<Kept>);

struct Kept {
    history: Mutex<History>,
    broken: AtomicU64,
}

impl JobMetrics {
    pub(crate) fn new() -> Self {
        JobMetrics(Arc::new(Kept {
            history: Mutex::new(empty()),
            broken: AtomicU64::new(0),
        }))
    }

    /// Takes in what a worker has measured; what can't be read is counted and left out.
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

    /// Takes in what the master itself has counted.
    pub(crate) fn take_own(&self, batch: &Batch) {
        let history = self.0.history.lock();
        let mut history = history.unwrap_or_else(PoisonError::into_inner);
        history.take(batch, now());
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let history = self.0.history.lock();
        *history.unwrap_or_else(PoisonError::into_inner) = empty();
        self.0.broken.store(0, Ordering::Relaxed);
    }

    /// Asks the history something. Workers' batches wait meanwhile, and nothing else.
    pub fn ask<T>(&self, question: impl FnOnce(&History) -> T) -> T {
        let history = self.0.history.lock();
        question(&history.unwrap_or_else(PoisonError::into_inner))
    }

    /// How many batches could not be read.
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
