//! A map from each record and its event time to one record.

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, RecordGuard, Result, Timestamp};

/// Emits `f(record, time)` for each record, with the same event time.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::MapTimedP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("a", Timestamp::from_secs(3)), ("b", Timestamp::from_secs(4))])));
/// let mut outbox = Outbox::new(1, 16);
///
/// let mut map = MapTimedP::new(Arc::new(|name: &str, time: Timestamp| format!("{name}{}", time.as_millis())));
/// map.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<String>(Ordinal::FIRST)?.rows().values(), ["a3000", "b4000"]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct MapTimedP<T, U, F> {
    f: Arc<F>,
    records: PhantomData<fn(T) -> U>,
}

impl<T, U, F> MapTimedP<T, U, F>
where
    F: Fn(T, Timestamp) -> U,
{
    /// Creates a map by `f`, which instances share.
    pub fn new(f: Arc<F>) -> Self {
        MapTimedP {
            f,
            records: PhantomData,
        }
    }
}

impl<T, U, F> Processor for MapTimedP<T, U, F>
where
    T: Send + 'static,
    U: Send + 'static,
    F: Fn(T, Timestamp) -> U + Send + Sync + 'static,
{
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let f = &*self.f;
        let mut lane = outbox.lane::<U>(Ordinal::FIRST)?;
        let room = lane.room();
        let mut guard = RecordGuard::new();
        for (record, time) in inbox.rows::<T>()?.drain_front(room) {
            lane.push(f(record, time), time);
            guard.advance();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, at};
    use ardea_core::take_failed_index;

    #[test]
    fn each_record_is_mapped_once_with_its_time_and_keeps_it() {
        Drive::every_schedule(|drive| {
            let mut map = MapTimedP::new(Arc::new(|n: i64, time: Timestamp| (n, time)));
            let records: Vec<_> = (0..50).map(|n| (n, at(n * 7 % 50))).collect();
            let seen = drive
                .records(records.clone())
                .run::<(i64, Timestamp)>(&mut map);
            assert_eq!(seen.values(), records);
            assert!(seen.records().iter().all(|((_, seen), time)| seen == time));
        });
    }

    #[test]
    fn a_panic_names_the_record() {
        let mut map = MapTimedP::new(Arc::new(|n: u32, _: Timestamp| 10 / n));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Drive::default()
                .records([2u32, 1, 0, 5].map(|n| (n, at(1))))
                .run::<u32>(&mut map);
        }));
        assert!(outcome.is_err());
        assert_eq!(take_failed_index(), Some(2));
    }
}
