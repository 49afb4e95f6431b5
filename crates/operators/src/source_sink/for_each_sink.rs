//! A closure as a sink.

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, RecordGuard, Result, Rows, Timestamp};

/// Calls `f` with each record and its event time.
///
/// ```
/// use std::sync::{Arc, mpsc};
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::ForEachSinkP;
///
/// let (sender, receiver) = mpsc::channel();
/// let send = move |word: &'static str, _: Timestamp| { let _ = sender.send(word); };
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("to", Timestamp::MIN), ("be", Timestamp::MIN)])));
/// ForEachSinkP::new(Arc::new(send)).process(Ordinal::FIRST, &mut inbox, &mut Outbox::new(0, 1))?;
/// assert_eq!(receiver.iter().collect::<Vec<_>>(), ["to", "be"]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ForEachSinkP<T, F> {
    f: Arc<F>,
    records: PhantomData<fn(T)>,
}

impl<T, F> ForEachSinkP<T, F>
where
    F: Fn(T, Timestamp),
{
    /// By `f`, which all instances share.
    pub fn new(f: Arc<F>) -> Self {
        ForEachSinkP {
            f,
            records: PhantomData,
        }
    }
}

impl<T, F> Processor for ForEachSinkP<T, F>
where
    T: Send + 'static,
    F: Fn(T, Timestamp) + Send + Sync,
{
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let mut guard = RecordGuard::new();
        for (record, time) in inbox.rows::<T>()?.drain_front(usize::MAX) {
            (self.f)(record, time);
            guard.advance();
        }
        Ok(())
    }
}

/// Calls `f` with each batch of records: up to a chunk at a time, as they come.
///
/// For sinks that pay by the call, such as one that takes a lock.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::ForEachBatchSinkP;
///
/// let total = Arc::new(Mutex::new(0));
/// let adding = Arc::clone(&total);
/// let add = move |batch: &Rows<u64>| *adding.lock().unwrap() += batch.values().iter().sum::<u64>();
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([(3u64, Timestamp::MIN), (4, Timestamp::MIN)])));
/// ForEachBatchSinkP::new(Arc::new(add)).process(Ordinal::FIRST, &mut inbox, &mut Outbox::new(0, 1))?;
/// assert_eq!(*total.lock().unwrap(), 7);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ForEachBatchSinkP<T, F> {
    f: Arc<F>,
    records: PhantomData<fn(T)>,
}

impl<T, F> ForEachBatchSinkP<T, F>
where
    F: Fn(&Rows<T>),
{
    /// By `f`, which all instances share.
    pub fn new(f: Arc<F>) -> Self {
        ForEachBatchSinkP {
            f,
            records: PhantomData,
        }
    }
}

impl<T, F> Processor for ForEachBatchSinkP<T, F>
where
    T: Send + 'static,
    F: Fn(&Rows<T>) + Send + Sync,
{
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let batch = inbox.rows::<T>()?;
        (self.f)(batch);
        batch.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Drive, at};
    use std::sync::Mutex;

    #[test]
    fn the_closure_sees_every_record_once_in_order() {
        Drive::every_schedule(|drive| {
            let records: Vec<_> = (0..30).map(|n| (n, at(n))).collect();
            let seen = Arc::new(Mutex::new(Vec::new()));
            let (one, batch) = (Arc::clone(&seen), Arc::clone(&seen));
            let each = move |n: i64, time: Timestamp| one.lock().unwrap().push((n, time));
            drive
                .clone()
                .lanes(0)
                .records(records.clone())
                .run_lanes::<()>(&mut ForEachSinkP::new(Arc::new(each)));
            assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), records);

            let all = move |rows: &Rows<i64>| {
                batch
                    .lock()
                    .unwrap()
                    .extend(rows.iter().map(|(n, time)| (*n, time)))
            };
            drive
                .lanes(0)
                .records(records.clone())
                .run_lanes::<()>(&mut ForEachBatchSinkP::new(Arc::new(all)));
            assert_eq!(*seen.lock().unwrap(), records);
        });
    }
}
