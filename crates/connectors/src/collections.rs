//! Collections as sources, for tests and small tables.
//!
//! ```
//! use ardea_connectors::collections;
//! use ardea_core::{Bounded, Source, Timestamp};
//!
//! let carriers: Source<&str, Bounded> = collections::items(vec!["AA", "UA"]);
//! let delays = collections::items_with_times(vec![(5, Timestamp::from_secs(1)), (-2, Timestamp::from_secs(2))]);
//! ```

use std::sync::Arc;

use ardea_core::{Bounded, Checkpointed, Result, Source, SourceControl, Timestamp};

use crate::sequence_splits::SequenceSplits;
use crate::source_builder::{PollStatus, SourceBatch, SourceBuilder, SourceReader};

/// Returns a source of the items of a collection in order, without event times.
///
/// Items are cloned when they are read, since the job may be restarted. The instances share the
/// items. A restored job continues with the next item of the same collection; the job fails if the
/// collection has become too short.
pub fn items<T>(items: impl IntoIterator<Item = T>) -> Source<T, Bounded>
where
    T: Clone + Send + Sync + 'static,
{
    items_with_times(items.into_iter().map(|item| (item, Timestamp::MIN)))
}

/// Returns a source of the items of a collection in order, each with its event time. The source
/// emits no watermarks between the items.
pub fn items_with_times<T>(items: impl IntoIterator<Item = (T, Timestamp)>) -> Source<T, Bounded>
where
    T: Clone + Send + Sync + 'static,
{
    let items: Arc<[(T, Timestamp)]> = items.into_iter().collect();
    let source = SourceBuilder::batch("items").reader(move |instance| ItemReader {
        numbers: SequenceSplits::new(instance, items.len() as u64),
        items: Arc::clone(&items),
    });
    source.repeatable()
}

struct ItemReader<T> {
    items: Arc<[(T, Timestamp)]>,
    /// The indices of this instance's items.
    numbers: SequenceSplits,
}

impl<T: Clone + Send + Sync + 'static> SourceReader for ItemReader<T> {
    type Record = T;

    fn poll(&mut self, batch: &mut SourceBatch<'_, T>) -> Result<PollStatus> {
        while batch.has_room()
            && let Some(run) = self.numbers.front()
        {
            // Numbers are below the number of items, so they fit into `usize`.
            let (first, step) = (run.first as usize, run.step as usize);
            let count = (run.count as usize).min(batch.room());
            let rest = self.items.get(first..).unwrap_or_default();
            batch.add_rows(|rows| rows.extend(rest.iter().step_by(step).take(count).cloned()));
            self.numbers.advance(count as u64);
        }
        Ok(PollStatus::end_if(self.is_at_end()))
    }

    fn is_at_end(&self) -> bool {
        self.numbers.is_at_end()
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.numbers)
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::Instance;

    use super::*;
    use crate::testing::{Driven, context};
    use ardea_testkit::{Expected, SourceTest};

    #[test]
    fn items_come_in_order_with_their_times() {
        let timed = (0..200).map(|n| (n, Timestamp::from_secs(n)));
        let mut driven = Driven::start(items_with_times(timed.clone()));
        assert!(driven.run().unwrap().records.iter().copied().eq(timed));
    }

    #[test]
    fn instances_share_the_items() {
        let mut shares = Vec::new();
        for index in 0..2 {
            let mut context = context("s");
            context.instance = Instance {
                index,
                parallelism: 2,
            };
            let mut driven = Driven::new(items(["a", "b", "c"]), context).unwrap();
            shares.push(
                driven
                    .run()
                    .unwrap()
                    .values()
                    .into_iter()
                    .copied()
                    .collect::<Vec<_>>(),
            );
        }
        assert_eq!(shares, [vec!["a", "c"], vec!["b"]]);
        assert!(
            Driven::start(items(Vec::<u8>::new()))
                .run()
                .unwrap()
                .records
                .is_empty()
        );
    }

    #[test]
    fn a_collection_that_has_become_shorter_than_what_was_read_fails_the_job() {
        use crate::testing::stateful_context;
        let driven = |count: u32| Driven::new(items(0..count), stateful_context(0, 1)).unwrap();
        let mut before = driven(100);
        before.run_until_records(60);
        let snapshot = before.snapshot().unwrap();
        let seen = before.records.len() as u32;
        let error = driven(seen - 1).give_back(&snapshot).unwrap_err();
        assert_eq!(error.code(), ardea_core::ErrorCode::ReadFailed);
        for count in [seen, 100, 200] {
            let mut after = driven(count);
            after.give_back(&snapshot).unwrap();
            assert_eq!(after.run().unwrap().records.len() as u32, count - seen);
        }
    }

    #[test]
    fn the_contract_is_kept_in_every_schedule() {
        let (_, supplier, ..) = items(0..50).into_parts();
        SourceTest::supplied(supplier)
            .output(Expected::ordered(0..50))
            .survives()
            .run();
    }
}
