//! Aggregation by key over a bounded input.

use std::sync::Arc;

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress, Result,
    Timestamp, Watermark,
};
use ardea_state::{KeyTable, StateCodecs, TableState};

use crate::keyed_fold::FIRST_STAGE_KEYS;
use crate::{Feed, FeedVisitor, KeyedFold, Partial};

/// Aggregates each key over the whole input. At the end of the input it emits `(key, result)` per
/// key, without event time, in the order of the keys' first records. Restored keys come before the
/// others.
///
/// For bounded inputs only. Watermarks of the input are not forwarded, except that at the end of
/// time, which follows the results. With `()` as the key, all records are aggregated into one
/// result; an empty input has no result.
///
/// With a [`FoldPartials`](crate::FoldPartials) as the fold, it reads [`Partial`]s and is the
/// second stage of a two-stage aggregation.
///
/// ```
/// use std::sync::Arc;
/// use ardea_aggregate::count;
/// use ardea_operators::{FoldOne, GroupP};
///
/// let words = GroupP::new(Arc::new(FoldOne::new(|word: &String| word.clone(), count())));
/// ```
pub struct GroupP<F: KeyedFold> {
    fold: Arc<F>,
    keys: TableState<F::Key, F::Acc>,
    /// The next slot to emit.
    next: usize,
}

/// The first stage of a two-stage [`GroupP`]: aggregates each key on the producing side, before the
/// exchange by key.
///
/// Emits a [`Partial`] per key at the end of the input, at the end of an epoch, or when it holds
/// more than [`keys_max`](Self::keys_max) keys. It therefore has no state to checkpoint.
pub struct GroupCombineP<F: KeyedFold> {
    fold: Arc<F>,
    keys: KeyTable<F::Key, F::Acc>,
    /// The maximum number of keys held. With more, all partial results are emitted early.
    keys_max: usize,
    /// The next slot to emit; `None` unless keys are being emitted.
    next: Option<usize>,
}

/// Forwards only the end of time, after the results. All other watermarks are held back.
fn end_of_time(
    group: &mut impl Processor,
    watermark: Watermark,
    outbox: &mut Outbox,
) -> Result<Progress> {
    if watermark != Watermark::END {
        return Ok(Progress::DONE);
    }
    let progress = group.complete(outbox)?;
    if progress.done {
        outbox.watermark(watermark);
    }
    Ok(progress)
}

/// A visitor that aggregates a whole chunk.
struct TakeGroup<'a, F: KeyedFold, T> {
    fold: &'a F,
    keys: &'a mut T,
    inbox: &'a mut Inbox,
}

impl<F: KeyedFold> FeedVisitor<F> for TakeGroup<'_, F, TableState<F::Key, F::Acc>> {
    type Output = ();

    fn visit<I>(self, feed: &I) -> Result<()>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>,
    {
        let rows = self.inbox.rows::<I::Record>()?;
        self.keys.update_each(
            rows.values(),
            |record| feed.key(record),
            || self.fold.create(),
            |acc, record| feed.accumulate(acc, record),
        );
        rows.clear();
        Ok(())
    }
}

impl<F: KeyedFold> FeedVisitor<F> for TakeGroup<'_, F, KeyTable<F::Key, F::Acc>> {
    type Output = ();

    fn visit<I>(self, feed: &I) -> Result<()>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>,
    {
        let rows = self.inbox.rows::<I::Record>()?;
        self.keys.update_each(
            rows.values(),
            0,
            |record| feed.key(record),
            || self.fold.create(),
            |acc, record| feed.accumulate(acc, record),
        );
        rows.clear();
        Ok(())
    }
}

impl<F: KeyedFold> GroupP<F> {
    /// Creates a group that aggregates by `fold`.
    pub fn new(fold: Arc<F>) -> Self {
        GroupP {
            fold,
            keys: TableState::default(),
            next: 0,
        }
    }

    /// Sets the serializers of keys and accumulators, so that the state is checkpointed.
    pub fn with_codecs(mut self, codecs: StateCodecs<F::Key, F::Acc>) -> Self {
        self.keys.set_codecs(codecs);
        self
    }
}

impl<F: KeyedFold> Processor for GroupP<F> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.keys.open(context);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let (fold, keys) = (&*self.fold, &mut self.keys);
        fold.visit(input, TakeGroup { fold, keys, inbox })
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        end_of_time(self, watermark, outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.keys.is_cleared() {
            return Ok(Progress::DONE);
        }
        let table = self.keys.table();
        let mut lane = outbox.lane::<(F::Key, F::Out)>(Ordinal::FIRST)?;
        let after = table.len().min(self.next + lane.room());
        for slot in self.next..after {
            let result = self.fold.finish(&table.values()[slot]);
            lane.push((table.keys()[slot].clone(), result), Timestamp::MIN);
        }
        let made = after > self.next;
        self.next = after;
        let done = after == table.len();
        if done {
            self.next = 0;
            self.keys.clear();
        }
        Ok(Progress {
            made: made || done,
            done,
        })
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.keys.unsaved_state()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.keys)
    }
}

impl<F: KeyedFold> GroupCombineP<F> {
    /// Creates a first stage that aggregates by `fold`.
    pub fn new(fold: Arc<F>) -> Self {
        GroupCombineP {
            fold,
            keys: KeyTable::default(),
            keys_max: FIRST_STAGE_KEYS,
            next: None,
        }
    }

    /// Sets the maximum number of keys held. With more, all partial results are emitted early.
    pub fn keys_max(mut self, keys: usize) -> Self {
        self.keys_max = keys;
        self
    }
}

impl<F: KeyedFold> Processor for GroupCombineP<F> {
    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let too_many = self.keys.len() > self.keys_max || self.next.is_some();
        if too_many && !self.complete(outbox)?.done {
            return Ok(());
        }
        let (fold, keys) = (&*self.fold, &mut self.keys);
        fold.visit(input, TakeGroup { fold, keys, inbox })
    }

    /// Emits all keys, so that no state remains at the end of an epoch.
    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.complete(outbox)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        end_of_time(self, watermark, outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut lane = outbox.lane::<Partial<F::Key, F::Acc>>(Ordinal::FIRST)?;
        let first = self.next.unwrap_or(0);
        let after = self.keys.len().min(first + lane.room());
        for slot in first..after {
            let acc = std::mem::replace(&mut self.keys.values_mut()[slot], self.fold.create());
            lane.push(
                Partial {
                    key: self.keys.keys()[slot].clone(),
                    acc,
                },
                Timestamp::MIN,
            );
        }
        let done = after == self.keys.len();
        self.next = (!done).then_some(after);
        if done {
            self.keys.clear();
        }
        Ok(Progress {
            made: after > first || done,
            done,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::test_driver::{Step, drive, untimed};
    use crate::{FoldOne, FoldPartials, FoldTwo};
    use ardea_aggregate::{co_aggregate, count, sum};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn sum_by_key() -> Arc<impl KeyedFold<Key = u64, Acc = i128, Out = i128>> {
        Arc::new(FoldOne::new(
            |value: &u64| *value % 10,
            sum(|value: &u64| *value),
        ))
    }

    #[test]
    fn results_come_before_the_end_of_time_and_once() {
        let steps = [
            Step::rows(&[(1, 5), (12, 6)]),
            Step::Watermark(7),
            Step::rows(&[(2, 9)]),
            Step::End,
        ];
        let mut out = drive(GroupP::new(sum_by_key()), &steps, 1);
        assert_eq!(untimed(out.take_timed::<(u64, i128)>(0)), [(1, 1), (2, 14)]);
        assert_eq!(out.watermarks(), [i64::MAX]);
    }

    #[test]
    fn two_inputs_are_grouped_together() {
        let fold = FoldTwo::new(
            |view: &u64| *view,
            |bid: &(u64, u64)| bid.0,
            co_aggregate(count(), sum(|bid: &(u64, u64)| bid.1)),
        );
        let steps = [
            Step::rows(&[(1, 0), (1, 0), (2, 0)]),
            Step::rows_on(1, &[((2u64, 50u64), 0), ((3, 60), 0)]),
            Step::End,
        ];
        let out = drive(GroupP::new(Arc::new(fold)), &steps, 2);
        let results = untimed(out.timed::<(u64, (u64, i128))>(0));
        assert_eq!(results, [(1, (2, 0)), (2, (1, 50)), (3, (0, 60))]);
    }

    proptest! {
        #[test]
        fn two_stages_give_what_one_gives(
            instances in prop::collection::vec(prop::collection::vec(0u64..1_000, 0..50), 1..4),
            keys_max in 0usize..12,
            budget in 1usize..4,
        ) {
            let mut plain: BTreeMap<u64, i128> = BTreeMap::new();
            let mut partials = Vec::new();
            for values in &instances {
                for value in values {
                    *plain.entry(value % 10).or_default() += i128::from(*value);
                }
                let rows: Vec<_> = values.iter().map(|value| (*value, 0)).collect();
                let steps: Vec<_> = rows.chunks(7).map(Step::rows).chain([Step::End]).collect();
                let first = GroupCombineP::new(sum_by_key()).keys_max(keys_max);
                partials.push(Step::rows_on(0, &drive(first, &steps, budget).timed::<Partial<u64, i128>>(0)));
            }
            partials.push(Step::End);
            let second = GroupP::new(Arc::new(FoldPartials::new(sum_by_key())));
            let mut results = untimed(drive(second, &partials, budget).timed::<(u64, i128)>(0));
            results.sort();
            prop_assert_eq!(results, plain.into_iter().collect::<Vec<_>>());
        }
    }
}
