//! Aggregates over the whole of a bounded input.

use std::sync::Arc;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Progress, Result, Timestamp, Watermark};

use crate::keyed_fold::FIRST_STAGE_KEYS;
use crate::{Feed, FeedVisitor, KeyTable, KeyedFold, Partial};

/// Aggregates each key over the whole input; emits `(key, result)` for each key when the input has ended, without event
/// time, in the order in which the keys came first.
///
/// Only for inputs that end. The time of the input does not go through: watermarks are held back until the end, which
/// follows the results. With `()` as the key it aggregates all records into one result (none if there is no record).
///
/// Fed with [`Partial`]s through a [`FoldPartials`](crate::FoldPartials), it is the second of two stages.
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
    keys: KeyTable<F::Key, F::Acc>,
    /// The next slot to emit.
    next: usize,
}

/// The first of two stages of a [`GroupP`]: aggregates each key on the producing side, before the exchange by key.
///
/// Emits a [`Partial`] for each key when the input has ended, or sooner when it holds very many keys.
pub struct GroupCombineP<F: KeyedFold> {
    fold: Arc<F>,
    keys: KeyTable<F::Key, F::Acc>,
    /// How many keys it holds before it hands them on early.
    keys_max: usize,
    /// The next slot to emit, while the keys are being handed on.
    next: Option<usize>,
}

/// Only the end of all time is passed on, behind what it completes; all other watermarks are held back.
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

/// Takes a whole chunk.
struct TakeGroup<'a, F: KeyedFold> {
    fold: &'a F,
    keys: &'a mut KeyTable<F::Key, F::Acc>,
    inbox: &'a mut Inbox,
}

impl<F: KeyedFold> FeedVisitor<F> for TakeGroup<'_, F> {
    type Output = ();

    fn visit<I>(self, feed: &I) -> Result<()>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>,
    {
        let TakeGroup { fold, keys, inbox } = self;
        let rows = inbox.rows::<I::Record>()?;
        let key = |record| feed.key(record);
        keys.update_each(
            rows.values(),
            0,
            key,
            || fold.create(),
            |acc, record| {
                feed.accumulate(acc, record);
            },
        );
        rows.clear();
        Ok(())
    }
}

impl<F: KeyedFold> GroupP<F> {
    /// Aggregates by `fold`.
    pub fn new(fold: Arc<F>) -> Self {
        GroupP {
            fold,
            keys: KeyTable::default(),
            next: 0,
        }
    }
}

impl<F: KeyedFold> Processor for GroupP<F> {
    fn forgets(&self) -> Option<&'static str> {
        Some("what it has aggregated")
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let (fold, keys) = (&*self.fold, &mut self.keys);
        fold.visit(input, TakeGroup { fold, keys, inbox })
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        end_of_time(self, watermark, outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut lane = outbox.lane::<(F::Key, F::Out)>(Ordinal::FIRST)?;
        let after = self.keys.len().min(self.next + lane.room());
        for slot in self.next..after {
            let result = self.fold.finish(&self.keys.values()[slot]);
            lane.push((self.keys.keys()[slot].clone(), result), Timestamp::MIN);
        }
        let made = after > self.next;
        self.next = after;
        let done = after == self.keys.len();
        if done {
            self.keys.clear();
            self.next = 0;
        }
        Ok(Progress {
            made: made || done,
            done,
        })
    }
}

impl<F: KeyedFold> GroupCombineP<F> {
    /// Aggregates by `fold`.
    pub fn new(fold: Arc<F>) -> Self {
        GroupCombineP {
            fold,
            keys: KeyTable::default(),
            keys_max: FIRST_STAGE_KEYS,
            next: None,
        }
    }

    /// Hands keys on early when there are more than `keys`.
    pub fn keys_max(mut self, keys: usize) -> Self {
        self.keys_max = keys;
        self
    }
}

impl<F: KeyedFold> Processor for GroupCombineP<F> {
    fn forgets(&self) -> Option<&'static str> {
        Some("what it has aggregated")
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let too_many = self.keys.len() > self.keys_max || self.next.is_some();
        if too_many && !self.complete(outbox)?.done {
            return Ok(());
        }
        let (fold, keys) = (&*self.fold, &mut self.keys);
        fold.visit(input, TakeGroup { fold, keys, inbox })
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
    use crate::window::drive::{Step, drive, untimed};
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
