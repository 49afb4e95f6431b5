//! A sink that counts and drops records, for measurements. Records replayed after a failure are
//! counted again.
//!
//! ```
//! let (sink, count) = ardea_connectors::null::counting::<String>();
//! // Give the sink to a pipeline, run it, then:
//! assert_eq!(count.get(), 0);
//! ```

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_core::{Delivery, Inbox, Ordinal, Outbox, Processor, Result, Sink, supplier};

/// Returns a sink that drops records.
pub fn sink<T: Send + 'static>() -> Sink<T> {
    counting().0
}

/// Returns a sink that counts and drops records, and a handle to the count.
pub fn counting<T: Send + 'static>() -> (Sink<T>, Count) {
    let count = Count::default();
    let shared = count.clone();
    let make = move || NullP::<T> {
        count: shared.clone(),
        record: PhantomData,
    };
    let sink = Sink::new("null", supplier(make)).with_delivery(Delivery::Nothing);
    (sink, count)
}

/// The number of records that a [`counting`] sink has received, over all instances.
#[derive(Clone, Default, Debug)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    /// Returns the present count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

struct NullP<T> {
    count: Count,
    record: PhantomData<fn(T)>,
}

impl<T: Send + 'static> Processor for NullP<T> {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<T>()?;
        self.count.0.fetch_add(rows.len() as u64, Ordering::AcqRel);
        rows.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fed;
    use ardea_testkit::{Counted, LiveCount, ProcessorTest};

    #[test]
    fn every_record_counts() {
        let (sink, count) = counting();
        Fed::start(sink).feed(0..100).unwrap().feed(0..23).unwrap();
        assert_eq!(count.get(), 123);
    }

    #[test]
    fn the_contract_is_kept_in_every_schedule() {
        let live = LiveCount::new();
        let records: Vec<_> = (0..20u32).map(|n| Counted::new(n, &live)).collect();
        ProcessorTest::new(|| NullP::<Counted<u32>> {
            count: Count::default(),
            record: PhantomData,
        })
        .input::<Counted<u32>>(records)
        .expect_no_leak(&live)
        .run();
    }
}
