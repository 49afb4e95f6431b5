//! A sink that calls a function with each record.
//!
//! ```
//! use ardea_connectors::for_each::for_each;
//! use ardea_core::{Isolation, Sink};
//!
//! let quick: Sink<u64> = for_each(|n| assert!(n < 10));
//! // A blocking function needs a separate thread.
//! let slow: Sink<String> = for_each(|line| println!("{line}")).isolation(Isolation::Thread);
//! ```

use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Delivery, Inbox, Ordinal, Outbox, Processor, RecordGuard, Result, Sink, supplier,
};

/// Returns a sink that calls `act` with each record; all instances share `act`.
///
/// The sink runs on a cooperative thread. An `act` that blocks delays other work and needs
/// [`Isolation::Thread`](ardea_core::Isolation::Thread). In a job with state, `act` is called again
/// for records replayed after a failure.
pub fn for_each<T, F>(act: F) -> Sink<T>
where
    T: Send + 'static,
    F: Fn(T) + Send + Sync + 'static,
{
    let act = Arc::new(act);
    let make = move || ForEachP {
        act: Arc::clone(&act),
        record: PhantomData,
    };
    Sink::new("for each", supplier(make)).with_delivery(Delivery::AtLeastOnce)
}

struct ForEachP<T, F> {
    act: Arc<F>,
    record: PhantomData<fn(T)>,
}

impl<T: Send + 'static, F: Fn(T) + Send + Sync> Processor for ForEachP<T, F> {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let rows = inbox.rows::<T>()?;
        let count = rows.len();
        let mut guard = RecordGuard::new();
        for (record, _) in rows.drain_front(count) {
            (self.act)(record);
            guard.advance();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::testing::Fed;
    use ardea_testkit::{Counted, LiveCount, ProcessorTest};

    #[test]
    fn the_function_sees_each_record_in_order() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&seen);
        Fed::start(for_each(move |n| shared.lock().unwrap().push(n)))
            .feed([3, 1, 2])
            .unwrap();
        assert_eq!(*seen.lock().unwrap(), [3, 1, 2]);
    }

    #[test]
    fn a_panic_is_laid_to_its_record() {
        let mut fed = Fed::start(for_each(|n: u8| assert!(n < 2)));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = fed.offer([0, 1, 2, 3]);
        }));
        assert!(outcome.is_err());
        assert_eq!(ardea_core::take_failed_index(), Some(2));
    }

    #[test]
    fn the_contract_is_kept_in_every_schedule() {
        let live = LiveCount::new();
        let records: Vec<_> = (0..20u32).map(|n| Counted::new(n, &live)).collect();
        ProcessorTest::new(|| ForEachP {
            act: Arc::new(drop::<Counted<u32>>),
            record: PhantomData,
        })
        .input::<Counted<u32>>(records)
        .expect_no_leak(&live)
        .run();
    }
}
