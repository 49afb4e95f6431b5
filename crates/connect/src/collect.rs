//! Collects a stream in memory, for tests and for jobs inside a program.
//!
//! ```
//! use ardea_connect::collect;
//!
//! let (sink, collected) = collect::collect::<u64>();
//! // Give the sink to a pipeline, run it, then:
//! assert_eq!(collected.take_values(), Vec::<u64>::new());
//! ```

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result, Rows, Sink, Timestamp, supplier};

/// A sink that keeps all records in memory, and the handle by which they are taken out.
///
/// Records of one instance keep their order. Memory grows with the stream: take records out while it runs, or collect
/// bounded streams only.
pub fn collect<T: Send + 'static>() -> (Sink<T>, Collected<T>) {
    let collected = Collected(Arc::default());
    let shared = collected.clone();
    (
        Sink::new("collect", supplier(move || CollectP(shared.clone()))),
        collected,
    )
}

/// What a [`collect`] sink has received.
pub struct Collected<T>(Arc<Mutex<Rows<T>>>);

impl<T> Clone for Collected<T> {
    fn clone(&self) -> Self {
        Collected(Arc::clone(&self.0))
    }
}

impl<T> Collected<T> {
    fn lock(&self) -> MutexGuard<'_, Rows<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many records are there.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Takes all records out, with their event times.
    pub fn take(&self) -> Vec<(T, Timestamp)> {
        let mut rows = std::mem::take(&mut *self.lock());
        let count = rows.len();
        rows.drain_front(count).collect()
    }

    /// Takes all records out.
    pub fn take_values(&self) -> Vec<T> {
        self.take().into_iter().map(|(value, _)| value).collect()
    }
}

impl<T> fmt::Debug for Collected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collected({} records)", self.len())
    }
}

struct CollectP<T>(Collected<T>);

impl<T: Send + 'static> Processor for CollectP<T> {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<T>()?;
        let count = rows.len();
        self.0.lock().append_front(rows, count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fed;

    #[test]
    fn records_are_there_in_order_and_taken_once() {
        let (sink, collected) = collect();
        Fed::start(sink).feed([1, 2]).unwrap().feed([3]).unwrap();
        assert_eq!(collected.len(), 3);
        assert_eq!(collected.take_values(), [1, 2, 3]);
        assert!(collected.is_empty());
    }
}
