//! A callback for passing records.

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, RecordGuard, Result, Timestamp};

use crate::forward::{pass_front, passable};

/// Calls `look` with each record and its event time, and forwards the record.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::InspectP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([(3u64, Timestamp::MIN), (4, Timestamp::MIN)])));
/// let mut outbox = Outbox::new(1, 16);
///
/// let sum = Arc::new(AtomicU64::new(0));
/// let adding = Arc::clone(&sum);
/// let look = move |n: &u64, _: Timestamp| { adding.fetch_add(*n, Ordering::Relaxed); };
/// InspectP::new(Arc::new(look)).process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(sum.load(Ordering::Relaxed), 7);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct InspectP<T, F> {
    look: Arc<F>,
    records: PhantomData<fn(T)>,
}

impl<T, F> InspectP<T, F>
where
    F: Fn(&T, Timestamp),
{
    /// Creates an operator that calls `look`, which instances share.
    pub fn new(look: Arc<F>) -> Self {
        InspectP {
            look,
            records: PhantomData,
        }
    }
}

impl<T, F> Processor for InspectP<T, F>
where
    T: Send + 'static,
    F: Fn(&T, Timestamp) + Send + Sync + 'static,
{
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        // Only records that can be forwarded now are passed to the callback, so that each record is
        // passed once.
        let count = passable::<T>(inbox, outbox, Ordinal::FIRST)?;
        let mut guard = RecordGuard::new();
        for (record, time) in inbox.rows::<T>()?.iter().take(count) {
            (self.look)(record, time);
            guard.advance();
        }
        pass_front::<T>(inbox, outbox, Ordinal::FIRST, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, at};
    use std::sync::Mutex;

    #[test]
    fn each_record_is_looked_at_once_and_passes_unchanged() {
        Drive::every_schedule(|drive| {
            let looked = Arc::new(Mutex::new(Vec::new()));
            let looking = Arc::clone(&looked);
            let look = move |n: &i64, time: Timestamp| looking.lock().unwrap().push((*n, time));
            let mut inspect = InspectP::new(Arc::new(look));
            let seen = drive
                .records((0..30).map(|n| (n, at(n))))
                .run::<i64>(&mut inspect);
            assert_eq!(seen.records(), *looked.lock().unwrap());
            assert_eq!(seen.values(), (0..30).collect::<Vec<_>>());
        });
    }
}
