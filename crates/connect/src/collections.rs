//! Collections as sources, for tests and small tables.
//!
//! ```
//! use ardea_connect::collections;
//! use ardea_core::{Bounded, Source, Timestamp};
//!
//! let carriers: Source<&str, Bounded> = collections::items(vec!["AA", "UA"]);
//! let delays = collections::items_with_times(vec![(5, Timestamp::from_secs(1)), (-2, Timestamp::from_secs(2))]);
//! ```

use std::sync::Arc;

use ardea_core::{
    Bounded, Instance, InstanceContext, JobSignals, Ordinal, Outbox, Processor, Progress, Result,
    Source, Timestamp,
};

/// The items of a collection in their order, without event times.
///
/// The items are cloned as they are read: the job may be started again. Several instances share the items.
pub fn items<T>(items: impl IntoIterator<Item = T>) -> Source<T, Bounded>
where
    T: Clone + Send + Sync + 'static,
{
    items_with_times(items.into_iter().map(|item| (item, Timestamp::MIN)))
}

/// The items of a collection in their order, each with its event time. No watermark comes between them.
pub fn items_with_times<T>(items: impl IntoIterator<Item = (T, Timestamp)>) -> Source<T, Bounded>
where
    T: Clone + Send + Sync + 'static,
{
    let items: Arc<[(T, Timestamp)]> = items.into_iter().collect();
    let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
        Ok(Box::new(ItemsP {
            items: Arc::clone(&items),
            next: instance.index as usize,
            step: instance.parallelism as usize,
            signals: Arc::default(),
        }))
    };
    Source::new("items", Arc::new(supply))
}

struct ItemsP<T> {
    items: Arc<[(T, Timestamp)]>,
    next: usize,
    step: usize,
    signals: Arc<JobSignals>,
}

impl<T: Clone + Send + Sync + 'static> Processor for ItemsP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.signals = Arc::clone(&context.signals);
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        let room = lane.room();
        if room == 0 && self.next < self.items.len() {
            return Ok(Progress::NONE);
        }
        let rest = self.items.get(self.next..).unwrap_or_default();
        let before = lane.rows().len();
        lane.rows()
            .extend(rest.iter().step_by(self.step).take(room).cloned());
        self.next += (lane.rows().len() - before) * self.step;
        Ok(Progress::done_if(self.next >= self.items.len()))
    }

    fn is_at_end(&self) -> bool {
        self.next >= self.items.len()
    }
}

#[cfg(test)]
mod tests {
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
    fn the_contract_is_kept_in_every_schedule() {
        let (_, supplier, ..) = items(0..50).into_parts();
        SourceTest::supplied(supplier)
            .output(Expected::ordered(0..50))
            .run();
    }
}
