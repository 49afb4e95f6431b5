//! A filter by a predicate.

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result};

use crate::forward::pass_if;

/// Forwards the records for which `keep` returns true. `keep` is called once per record.
///
/// Works in place, and forwards whole chunks to an empty lane.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::FilterP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new((1..=6u32).map(|n| (n, Timestamp::MIN)).collect::<Rows<_>>()));
/// let mut outbox = Outbox::new(1, 16);
///
/// FilterP::new(Arc::new(|n: &u32| n % 3 == 0)).process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<u32>(Ordinal::FIRST)?.rows().values(), [3, 6]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct FilterP<T, F> {
    keep: Arc<F>,
    /// The number of waiting records already accepted by `keep`.
    asked: usize,
    records: PhantomData<fn(T)>,
}

impl<T, F> FilterP<T, F>
where
    F: Fn(&T) -> bool,
{
    /// Creates a filter by `keep`, which instances share.
    pub fn new(keep: Arc<F>) -> Self {
        FilterP {
            keep,
            asked: 0,
            records: PhantomData,
        }
    }
}

impl<T, F> Processor for FilterP<T, F>
where
    T: Send + 'static,
    F: Fn(&T) -> bool + Send + Sync + 'static,
{
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        pass_if::<T>(inbox, outbox, &mut self.asked, &*self.keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, at};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_wanted_records_pass_with_their_times_and_each_is_asked_about_once() {
        Drive::every_schedule(|drive| {
            let asked = Arc::new(AtomicUsize::new(0));
            let asking = Arc::clone(&asked);
            let mut filter = FilterP::new(Arc::new(move |n: &i64| {
                asking.fetch_add(1, Ordering::Relaxed);
                n % 3 == 0
            }));
            let seen = drive
                .records((0..50).map(|n| (n, at(n))))
                .run::<i64>(&mut filter);
            assert_eq!(
                seen.records(),
                (0..50).step_by(3).map(|n| (n, at(n))).collect::<Vec<_>>()
            );
            assert_eq!(asked.load(Ordering::Relaxed), 50);
        });
    }
}
