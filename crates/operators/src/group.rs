//! Aggregates over the whole of a bounded input.

use std::borrow::Cow;
use std::sync::Arc;

use ardea_core::{
    Cut, CutWriter, Epoch, Inbox, InstanceContext, Key, Ordinal, Outbox, Processor, Progress,
    RestoredState, Result, StateChunk, StateShape, Timestamp, Watermark,
};

use crate::keyed::{
    CutLog, Fresh, KeptAs, STATE, Stamps, Touch, twice, unless_kept, write_removed,
};
use crate::keyed_fold::FIRST_STAGE_KEYS;
use crate::{Feed, FeedVisitor, KeyTable, KeyedFold, Partial};

/// Aggregates each key over the whole input; emits `(key, result)` for each key when the input has ended, without event
/// time, in the order in which the keys came first; those that came back from another life are before the others.
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
    /// How keys and accumulators are written where they have to survive it.
    kept: Option<KeptAs<F::Key, F::Acc>>,
    cuts: Option<Box<GroupCuts<F::Key, F::Acc>>>,
}

/// What cuts need to know of a group.
struct GroupCuts<K, A> {
    log: CutLog,
    stamps: Stamps,
    kept: KeptAs<K, A>,
    /// The generation in which all was emitted.
    ended_in: Option<u32>,
}

/// How many keys a call looks at, at the most, for what belongs to a cut.
const PLACES_PER_CALL: usize = 8 * 1024;

/// The first of two stages of a [`GroupP`]: aggregates each key on the producing side, before the exchange by key.
///
/// Emits a [`Partial`] for each key when the input has ended, or sooner when it holds very many keys, or an epoch ends: so it remembers
/// nothing that would have to survive it.
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
    cuts: Option<&'a mut GroupCuts<F::Key, F::Acc>>,
    inbox: &'a mut Inbox,
}

impl<F: KeyedFold> FeedVisitor<F> for TakeGroup<'_, F> {
    type Output = ();

    fn visit<I>(self, feed: &I) -> Result<()>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>,
    {
        let TakeGroup {
            fold,
            keys,
            cuts,
            inbox,
        } = self;
        let rows = inbox.rows::<I::Record>()?;
        let key = |record| feed.key(record);
        let create = || fold.create();
        let update = |acc: &mut F::Acc, record| feed.accumulate(acc, record);
        match cuts {
            None => keys.update_each(rows.values(), 0, key, create, update),
            Some(GroupCuts {
                log, stamps, kept, ..
            }) if stamps.are_fresh(log) => {
                let mut watch = Fresh::new(stamps, log);
                keys.update_watched(rows.values(), 0, key, create, update, &mut watch);
            }
            Some(GroupCuts {
                log, stamps, kept, ..
            }) => {
                let write = |chunk: &mut StateChunk, key: &F::Key, acc: &F::Acc| {
                    kept.write(chunk, key, acc, |_| {})
                };
                let mut watch = Touch { stamps, log, write };
                keys.update_watched(rows.values(), 0, key, create, update, &mut watch);
            }
        }
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
            kept: None,
            cuts: None,
        }
    }

    /// Says how its keys and accumulators are written, so that they survive it.
    pub fn kept_as(mut self, kept: KeptAs<F::Key, F::Acc>) -> Self {
        self.kept = Some(kept);
        self
    }
}

impl<K: Key, A> GroupCuts<K, A> {
    fn write_cut(&mut self, keys: &KeyTable<K, A>, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let Some(cut) = self.log.write_aside(writer)? else {
            return Ok(Progress::DONE);
        };
        let (stamps, kept) = (&mut self.stamps, &self.kept);
        let mut left = PLACES_PER_CALL;
        let was_there = self.ended_in.is_none_or(|ended| cut.is_before(ended));
        let is_written = match was_there {
            true => stamps.write(cut, &mut left, writer, |chunk, at| {
                kept.write(chunk, &keys.keys()[at], &keys.values()[at], |_| {})
            })?,
            false if !cut.names_removed() => true,
            false => stamps.write_all(cut, &mut left, writer, |chunk, at| {
                write_removed((STATE, &[]), chunk, &keys.keys()[at])
            })?,
        };
        match is_written {
            true => Ok(self.log.finish()),
            false => Ok(Progress::MADE),
        }
    }
}

impl<F: KeyedFold> Processor for GroupP<F> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        let kept = self.kept.clone();
        let kept = kept.filter(|_| context.guarantee.keeps_state());
        self.cuts = kept.map(|kept| {
            Box::new(GroupCuts {
                log: CutLog::default(),
                stamps: Stamps::default(),
                kept,
                ended_in: None,
            })
        });
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let (fold, keys) = (&*self.fold, &mut self.keys);
        let cuts = self.cuts.as_deref_mut();
        let take = TakeGroup {
            fold,
            keys,
            cuts,
            inbox,
        };
        fold.visit(input, take)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        end_of_time(self, watermark, outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self
            .cuts
            .as_ref()
            .is_some_and(|cuts| cuts.ended_in.is_some())
        {
            return Ok(Progress::DONE);
        }
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
            self.next = 0;
            match &mut self.cuts {
                // Cuts have to know what was there, and is no more.
                Some(cuts) => cuts.ended_in = Some(cuts.log.generation()),
                None => self.keys.clear(),
            }
        }
        Ok(Progress {
            made: made || done,
            done,
        })
    }

    fn forgets(&self) -> Option<&'static str> {
        unless_kept(self.kept.as_ref())
    }

    fn states(&self) -> Vec<StateShape> {
        self.kept.iter().map(|kept| kept.shape(STATE)).collect()
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        if let Some(cuts) = &mut self.cuts {
            cuts.log.take_cut(cut);
        }
        Ok(())
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let Some(cuts) = &mut self.cuts else {
            return Ok(Progress::DONE);
        };
        let written = cuts.write_cut(&self.keys, writer);
        if written.is_err() {
            cuts.log.end();
        }
        written
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(cuts) = &mut self.cuts {
            cuts.log.commit(epoch);
        }
        Ok(Progress::DONE)
    }

    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(cuts) = &mut self.cuts {
            cuts.log.give_up(epoch);
        }
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let Some(cuts) = &self.cuts else {
                return Err(RestoredState::unknown(&entry));
            };
            let (key, acc, _) = cuts.kept.read(&entry)?;
            let place = self.keys.len() as u32;
            if self.keys.get_or_insert(Cow::Owned(key), || acc).0 != place {
                return Err(twice());
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let Some(cuts) = &mut self.cuts {
            cuts.stamps = Stamps::restored(self.keys.len());
        }
        Ok(Progress::DONE)
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
    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let too_many = self.keys.len() > self.keys_max || self.next.is_some();
        if too_many && !self.complete(outbox)?.done {
            return Ok(());
        }
        let (fold, keys) = (&*self.fold, &mut self.keys);
        let take = TakeGroup {
            fold,
            keys,
            cuts: None,
            inbox,
        };
        fold.visit(input, take)
    }

    /// All that it holds goes on, so that it has nothing to remember beyond the end of an epoch.
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
