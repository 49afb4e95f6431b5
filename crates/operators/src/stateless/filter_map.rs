//! A combined map and filter.

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, RecordGuard, Result};

/// Emits the value of `f(record)` if it is `Some`, with the record's event time.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::FilterMapP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("7", Timestamp::MIN), ("x", Timestamp::MIN)])));
/// let mut outbox = Outbox::new(1, 16);
///
/// let mut numbers = FilterMapP::new(Arc::new(|text: &str| text.parse::<u32>().ok()));
/// numbers.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<u32>(Ordinal::FIRST)?.rows().values(), [7]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct FilterMapP<T, U, F> {
    f: Arc<F>,
    records: PhantomData<fn(T) -> U>,
}

impl<T, U, F> FilterMapP<T, U, F>
where
    F: Fn(T) -> Option<U>,
{
    /// Creates an operator that applies `f`, which instances share.
    pub fn new(f: Arc<F>) -> Self {
        FilterMapP {
            f,
            records: PhantomData,
        }
    }
}

impl<T, U, F> Processor for FilterMapP<T, U, F>
where
    T: Send + 'static,
    U: Send + 'static,
    F: Fn(T) -> Option<U> + Send + Sync + 'static,
{
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let f = &*self.f;
        let mut lane = outbox.lane::<U>(Ordinal::FIRST)?;
        let mut guard = RecordGuard::new();
        let room = lane.room();
        for (record, time) in inbox.rows::<T>()?.drain_front(room) {
            if let Some(mapped) = f(record) {
                lane.push(mapped, time);
            }
            guard.advance();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, at};

    #[test]
    fn what_is_something_comes_out_with_its_time() {
        Drive::every_schedule(|drive| {
            let mut odd = FilterMapP::new(Arc::new(|n: i64| (n % 2 == 1).then(|| n.to_string())));
            let seen = drive
                .records((0..40).map(|n| (n, at(n))))
                .run::<String>(&mut odd);
            let expected: Vec<_> = (0..40)
                .filter(|n| n % 2 == 1)
                .map(|n| (n.to_string(), at(n)))
                .collect();
            assert_eq!(seen.records(), expected);
        });
    }
}
