//! A sink that only counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Result};

/// Counts records of any type and drops them.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::NullSinkP;
///
/// let count = Arc::new(AtomicU64::new(0));
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("a", Timestamp::MIN), ("b", Timestamp::MIN)])));
/// NullSinkP::new(Arc::clone(&count)).process(Ordinal::FIRST, &mut inbox, &mut Outbox::new(0, 1))?;
/// assert_eq!(count.load(Relaxed), 2);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct NullSinkP {
    count: Arc<AtomicU64>,
}

impl NullSinkP {
    /// Adds to `count`, which the instances share, once a chunk.
    pub fn new(count: Arc<AtomicU64>) -> Self {
        NullSinkP { count }
    }
}

impl Processor for NullSinkP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        self.count.fetch_add(inbox.len() as u64, Relaxed);
        let mut chunk = Chunk::default();
        inbox.swap(&mut chunk);
        chunk.clear();
        // The emptied chunk goes back the way it came, to its producer.
        inbox.swap(&mut chunk);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Drive, untimed};

    #[test]
    fn records_are_counted_and_the_memory_goes_back() {
        let count = Arc::new(AtomicU64::new(0));
        let mut sink = NullSinkP::new(Arc::clone(&count));
        Drive::default()
            .lanes(0)
            .records(untimed(0..3000u32))
            .run_lanes::<()>(&mut sink);
        assert_eq!(count.load(Relaxed), 3000);

        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(ardea_core::Rows::from_iter(untimed([1u8]))));
        sink.process(Ordinal::FIRST, &mut inbox, &mut Outbox::new(0, 1))
            .unwrap();
        assert!(inbox.take_empty().is_some());
    }
}
