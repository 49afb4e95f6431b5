//! A sink that stores all records, for tests of whole jobs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use ardea_core::{
    Inbox, Instance, InstanceContext, Ordinal, Outbox, Processor, Progress, Result, Sink,
    Timestamp, Watermark,
};

/// A record received by a [`TestSink`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival<T> {
    /// The record.
    pub value: T,
    /// Its event time.
    pub time: Timestamp,
    /// The index of the sink instance that received it.
    pub instance: u32,
    /// The thread on which it was received.
    pub thread: ThreadId,
}

#[derive(Debug)]
struct Arrivals<T> {
    records: Vec<Arrival<T>>,
    watermarks: Vec<Watermark>,
}

/// Stores the records received by a sink, in the order of arrival over all its instances. Clones
/// share the records.
///
/// ```
/// use std::time::Duration;
/// use ardea_testkit::TestSink;
///
/// let arrived = TestSink::<u64>::new();
/// let sink = arrived.sink(); // … for a job on other threads
/// assert!(!arrived.wait_for(1, Duration::ZERO));
/// assert!(arrived.values().is_empty());
/// # drop(sink);
/// ```
#[derive(Debug)]
pub struct TestSink<T> {
    shared: Arc<(Mutex<Arrivals<T>>, Condvar)>,
}

impl<T> Clone for TestSink<T> {
    fn clone(&self) -> Self {
        TestSink {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> Default for TestSink<T> {
    fn default() -> Self {
        let arrivals = Arrivals {
            records: Vec::new(),
            watermarks: Vec::new(),
        };
        TestSink {
            shared: Arc::new((Mutex::new(arrivals), Condvar::new())),
        }
    }
}

/// Creates a sink and the handle to its received records.
pub fn collect<T: Send + 'static>() -> (Sink<T>, TestSink<T>) {
    let arrived = TestSink::new();
    (arrived.sink(), arrived)
}

impl<T> TestSink<T> {
    /// Creates a test sink without records.
    pub fn new() -> Self {
        TestSink::default()
    }

    fn lock(&self) -> MutexGuard<'_, Arrivals<T>> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of received records.
    pub fn len(&self) -> usize {
        self.lock().records.len()
    }

    /// Returns true if no record has been received.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The watermarks received by all instances.
    pub fn watermarks(&self) -> Vec<Watermark> {
        self.lock().watermarks.clone()
    }

    /// Takes the received records.
    pub fn take(&self) -> Vec<Arrival<T>> {
        std::mem::take(&mut self.lock().records)
    }

    /// Waits until at least `records` records have been received, at most for `patience`. Returns
    /// false on timeout.
    pub fn wait_for(&self, records: usize, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut arrived = self.lock();
        while arrived.records.len() < records {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.shared.1.wait_timeout(arrived, left);
            arrived = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl<T: Clone> TestSink<T> {
    /// Returns the records received so far, with their details.
    pub fn arrivals(&self) -> Vec<Arrival<T>> {
        self.lock().records.clone()
    }

    /// Returns the values of the records received so far.
    pub fn values(&self) -> Vec<T> {
        self.lock()
            .records
            .iter()
            .map(|arrival| arrival.value.clone())
            .collect()
    }
}

impl<T: Send + 'static> TestSink<T> {
    /// Creates a sink for a job; several sinks of one test sink store their records together.
    pub fn sink(&self) -> Sink<T> {
        let sink = self.clone();
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(TestSinkP {
                sink: sink.clone(),
                instance: instance.index,
            }))
        };
        Sink::new("test sink", Arc::new(supply))
    }
}

struct TestSinkP<T> {
    sink: TestSink<T>,
    instance: u32,
}

impl<T: Send + 'static> Processor for TestSinkP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.instance = context.instance.index;
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let (instance, thread) = (self.instance, std::thread::current().id());
        let rows = inbox.rows::<T>()?;
        let arrive = |(value, time)| Arrival {
            value,
            time,
            instance,
            thread,
        };
        self.sink
            .lock()
            .records
            .extend(rows.drain_front(usize::MAX).map(arrive));
        self.sink.shared.1.notify_all();
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.sink.lock().watermarks.push(watermark);
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Harness;

    #[test]
    fn everything_that_arrives_is_kept_with_its_time_and_thread() {
        let arrived = TestSink::<u32>::new();
        let mut sink = Harness::new(
            TestSinkP {
                sink: arrived.clone(),
                instance: 0,
            },
            1,
            0,
        );
        sink.push(0, 7u32, Timestamp::from_secs(1)).read(0).unwrap();
        sink.watermark(Timestamp::from_secs(2)).unwrap();
        assert!(arrived.wait_for(1, Duration::ZERO));
        assert_eq!(arrived.watermarks(), [Watermark(Timestamp::from_secs(2))]);
        let arrivals = arrived.take();
        assert_eq!(
            (arrivals[0].value, arrivals[0].time),
            (7, Timestamp::from_secs(1))
        );
        assert_eq!(arrivals[0].thread, std::thread::current().id());
        assert!(arrived.is_empty());
    }

    #[test]
    fn waiting_ends_when_another_thread_brings_the_record() {
        let arrived = TestSink::<u32>::new();
        let sink = arrived.clone();
        let bringer = std::thread::spawn(move || {
            let mut harness = Harness::new(TestSinkP { sink, instance: 0 }, 1, 0);
            harness.push(0, 1u32, Timestamp::MIN).read(0).unwrap();
        });
        assert!(arrived.wait_for(1, Duration::from_secs(60)));
        bringer.join().unwrap();
    }
}
