//! A source of a sequence of records at full speed.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use ardea_core::{Bounded, Checkpointed, RecordGuard, Result, Source, SourceControl, Timestamp};

use crate::sequence_splits::SequenceSplits;
use crate::source_builder::{PollStatus, SourceBatch, SourceBuilder, SourceReader};

/// Returns a source of the records `make(i)` for each `i` of `range`, without event times, at full
/// speed.
///
/// The instances split the sequence: each of n instances makes every n-th record. A draining job
/// stops before the end of the sequence. A restored job continues with the next record, also after
/// a rescale; `make` must be deterministic.
pub fn sequence<T, F>(range: Range<u64>, make: F) -> Source<T, Bounded>
where
    T: Send + 'static,
    F: Fn(u64) -> T + Send + Sync + 'static,
{
    let make = Arc::new(make);
    SourceBuilder::batch("sequence").reader(move |instance| SequenceReader {
        start: range.start,
        numbers: SequenceSplits::new(instance, range.end.saturating_sub(range.start)),
        make: Arc::clone(&make),
        record: PhantomData,
    })
}

struct SequenceReader<T, F> {
    start: u64,
    /// The numbers of this instance, relative to the start of the range.
    numbers: SequenceSplits,
    make: Arc<F>,
    record: PhantomData<fn() -> T>,
}

impl<T, F> SourceReader for SequenceReader<T, F>
where
    T: Send + 'static,
    F: Fn(u64) -> T + Send + Sync + 'static,
{
    type Record = T;

    fn poll(&mut self, batch: &mut SourceBatch<'_, T>) -> Result<PollStatus> {
        let (start, make) = (self.start, &self.make);
        let mut left = batch.room() as u64;
        let mut guard = RecordGuard::new();
        while left > 0
            && let Some(run) = self.numbers.front()
        {
            let count = run.count.min(left);
            let (first, step) = (start + run.first, run.step);
            // Values and times in separate columns, which the compiler can vectorize.
            batch.add_rows(|rows| {
                rows.extend_columns(|values, times| {
                    values.extend((0..count).map(|number| {
                        let record = make(first + number * step);
                        guard.advance();
                        record
                    }));
                    times.resize(values.len(), Timestamp::MIN);
                });
            });
            self.numbers.advance(count);
            left -= count;
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
    use ardea_core::{Instance, Outbox};

    use super::*;
    use crate::testing::{Driven, context};
    use ardea_testkit::{Expected, SourceTest};

    #[test]
    fn instances_split_a_sequence_without_overlap() {
        let mut all = Vec::new();
        for index in 0..3 {
            let mut context = context("s");
            context.instance = Instance {
                index,
                parallelism: 3,
            };
            let mut driven = Driven::new(sequence(5..1005, |i| i), context).unwrap();
            all.extend(driven.run().unwrap().values().into_iter().copied());
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(5..1005));
    }

    #[test]
    fn the_ends_of_the_range_are_safe() {
        let mut driven = Driven::start(sequence(7..7, |i| i));
        assert!(driven.run().unwrap().records.is_empty());
        let mut driven = Driven::start(sequence(u64::MAX - 2..u64::MAX, |i| i));
        assert_eq!(driven.run().unwrap().records.len(), 2);
    }

    #[test]
    fn draining_stops_it() {
        let (_, supplier, ..) = sequence(0..u64::MAX, |i| i).into_parts();
        let emitted = SourceTest::supplied(supplier)
            .drain_after(100)
            .emitted::<u64>();
        assert!(emitted.len() >= 100);
    }

    #[test]
    fn it_knows_when_nothing_is_left() {
        let made = |range| {
            let (_, supplier, ..) = sequence(range, |i| i).into_parts();
            supplier.supply(Instance::ONLY).unwrap()
        };
        assert!(made(7..7).source().is_at_end() && !made(7..8).source().is_at_end());
        let mut one = made(7..8);
        assert!(one.complete(&mut Outbox::new(1, 8)).unwrap().done);
        assert!(one.source().is_at_end());
    }

    #[test]
    fn the_contract_is_kept_in_every_schedule() {
        let (_, supplier, ..) = sequence(5..55, |i| i * 2).into_parts();
        SourceTest::supplied(supplier)
            .output(Expected::ordered((5..55u64).map(|i| i * 2)))
            .survives()
            .run();
    }
}
