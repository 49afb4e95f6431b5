//! A sink that collects records in a vector.

use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result};

/// A sink that appends all records to a vector shared by its instances. The vector is locked once
/// per chunk.
///
/// For tests and small results: the vector grows as long as records arrive.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::CollectSinkP;
///
/// let collected = Arc::new(Mutex::new(Vec::<u64>::new()));
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([(3u64, Timestamp::MIN), (4, Timestamp::MIN)])));
/// CollectSinkP::new(Arc::clone(&collected)).process(Ordinal::FIRST, &mut inbox, &mut Outbox::new(0, 1))?;
/// assert_eq!(*collected.lock().unwrap(), [3u64, 4]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct CollectSinkP<T> {
    into: Arc<Mutex<Vec<T>>>,
}

impl<T> CollectSinkP<T> {
    /// Creates a sink that appends to `into`.
    pub fn new(into: Arc<Mutex<Vec<T>>>) -> Self {
        CollectSinkP { into }
    }
}

impl<T: Send + 'static> Processor for CollectSinkP<T> {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        // A reader that panicked while it held the lock cannot have damaged the vector.
        let mut into = self.into.lock().unwrap_or_else(PoisonError::into_inner);
        into.extend(
            inbox
                .rows::<T>()?
                .drain_front(usize::MAX)
                .map(|(record, _)| record),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, untimed};

    #[test]
    fn every_record_is_collected_in_order() {
        Drive::every_schedule(|drive| {
            let collected = Arc::new(Mutex::new(Vec::<u32>::new()));
            let mut sink = CollectSinkP::new(Arc::clone(&collected));
            drive
                .lanes(0)
                .records(untimed(0..30u32))
                .run_lanes::<()>(&mut sink);
            assert_eq!(*collected.lock().unwrap(), (0..30).collect::<Vec<_>>());
        });
    }
}
