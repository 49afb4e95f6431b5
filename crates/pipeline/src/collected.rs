//! Results collected in memory.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::{Boundedness, Delivery, Parallelism, Routing, Sink, supplier};
use ardea_operators::CollectSinkP;

use crate::Stream;
use crate::step::EdgeInput;

/// The records of a stream, in memory: for tests, notebooks and small results.
///
/// Grows as long as records arrive. For an unbounded stream, take the records regularly or use
/// another sink.
#[derive(Debug)]
pub struct Collected<T>(Arc<Mutex<Vec<T>>>);

impl<T> Collected<T> {
    /// Removes and returns the records collected so far. Records of one instance are in order.
    pub fn take(&self) -> Vec<T> {
        mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes and returns the records collected so far, sorted.
    pub fn take_sorted(&self) -> Vec<T>
    where
        T: Ord,
    {
        let mut records = self.take();
        records.sort();
        records
    }

    /// Returns the number of collected records.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns true if there are no collected records.
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
    /// Collects the records in the memory of this process, and ends this branch. A cluster refuses
    /// a job with this step. In a job with checkpoints, records that are processed again after a
    /// failure are collected again.
    pub fn collect(self) -> Collected<T> {
        let records: Arc<Mutex<Vec<T>>> = Arc::default();
        let into = Arc::clone(&records);
        let sink = Sink::new(
            "collect",
            supplier(move || CollectSinkP::new(Arc::clone(&into))),
        );
        let pipeline = self.pipeline.clone();
        let sink = sink.parallelism(Parallelism::ONE);
        let sink = sink.with_delivery(Delivery::AtLeastOnce);
        let step = self.end_in(sink, EdgeInput::within_process::<T>(Routing::Forward));
        pipeline.edit(step, |step| step.is_local_result = true);
        Collected(records)
    }
}
