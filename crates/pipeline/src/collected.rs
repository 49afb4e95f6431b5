//! What a job collected, for its author to look at.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::{Boundedness, Delivery, Parallelism, Routing, Sink, supplier};
use ardea_operators::CollectSinkP;

use crate::Stream;
use crate::step::Way;

/// The records that a stream brought, in memory: for tests, notebooks and small results.
///
/// Grows as long as records come; take them out now and then, or use another sink, if the stream has no end.
#[derive(Debug)]
pub struct Collected<T>(Arc<Mutex<Vec<T>>>);

impl<T> Collected<T> {
    /// Takes out what has come so far. Records of one instance are in their order.
    pub fn take(&self) -> Vec<T> {
        mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes out what has come so far, sorted.
    pub fn take_sorted(&self) -> Vec<T>
    where
        T: Ord,
    {
        let mut records = self.take();
        records.sort();
        records
    }

    /// How many records wait to be taken.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Collected<T> {
    fn clone(&self) -> Self {
        Collected(Arc::clone(&self.0))
    }
}

impl<T: Send + 'static, B: Boundedness, E> Stream<T, B, E> {
    /// Collects the records in the memory of this process: the end of this branch. A job that does so is refused by a cluster.
    /// In one that keeps its state, records that come again after a failure are collected again.
    pub fn collect(self) -> Collected<T> {
        let records: Arc<Mutex<Vec<T>>> = Arc::default();
        let into = Arc::clone(&records);
        let sink = Sink::new(
            "collect",
            supplier(move || CollectSinkP::new(Arc::clone(&into))),
        );
        let pipeline = self.pipeline.clone();
        let sink = sink.parallelism(Parallelism::ONE);
        let sink = sink.delivering(Delivery::AtLeastOnce);
        let step = self.end_in(sink, Way::within_process(Routing::Forward));
        pipeline.edit(step, |step| step.is_for_author = true);
        Collected(records)
    }
}
