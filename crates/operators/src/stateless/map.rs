//! A map from each record to one record.

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, RecordGuard, Result};

/// Emits `f(record)` for each record, with its event time.
///
/// One pass over the column of records; the column of times is copied.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::MapP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([(3u32, Timestamp::MIN), (4, Timestamp::MIN)])));
/// let mut outbox = Outbox::new(1, 16);
///
/// let mut map = MapP::new(Arc::new(|n: u32| format!("#{n}")));
/// map.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<String>(Ordinal::FIRST)?.rows().values(), ["#3", "#4"]);
/// assert!(inbox.is_empty(), "processed records are removed");
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct MapP<T, U, F> {
    f: Arc<F>,
    records: PhantomData<fn(T) -> U>,
}

impl<T, U, F> MapP<T, U, F>
where
    F: Fn(T) -> U,
{
    /// Creates a map by `f`, which instances share.
    pub fn new(f: Arc<F>) -> Self {
        MapP {
            f,
            records: PhantomData,
        }
    }
}

impl<T, U, F> Processor for MapP<T, U, F>
where
    T: Send + 'static,
    U: Send + 'static,
    F: Fn(T) -> U + Send + Sync + 'static,
{
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let f = &*self.f;
        let mut lane = outbox.lane::<U>(Ordinal::FIRST)?;
        let room = lane.room();
        let mut guard = RecordGuard::new();
        lane.rows().extend_map(inbox.rows::<T>()?, room, |record| {
            let mapped = f(record);
            guard.advance();
            mapped
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, untimed};
    use ardea_core::take_failed_index;

    #[test]
    fn each_record_is_mapped_once_whatever_the_schedule() {
        Drive::every_schedule(|drive| {
            let mut map = MapP::new(Arc::new(|n: u32| u64::from(n) * 2));
            let seen = drive.records(untimed(0u32..100)).run::<u64>(&mut map);
            assert_eq!(seen.values(), (0..100).map(|n| n * 2).collect::<Vec<u64>>());
        });
    }

    #[test]
    fn a_panic_names_the_record() {
        let mut map = MapP::new(Arc::new(|n: u32| 10 / n));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Drive::default()
                .records(untimed([2u32, 1, 0, 5]))
                .run::<u32>(&mut map);
        }));
        assert!(outcome.is_err());
        assert_eq!(take_failed_index(), Some(2));
    }
}
