//! Aggregation by key over a bounded input.

use std::borrow::Cow;
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, Key, Ordinal, Outbox, Processor, Progress,
    RestoredState, Result, SnapshotRequest, SnapshotWriter, StateChunk, StateShape, Timestamp,
    Watermark,
};
use ardea_state::{
    ChangeStamps, STATE, SnapshotLog, StateCodecs, TrackChanges, TrackInserts, duplicate_entry,
    unsaved_without, write_removed,
};

use crate::keyed_fold::FIRST_STAGE_KEYS;
use crate::{Feed, FeedVisitor, KeyTable, KeyedFold, Partial};

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
    keys: KeyTable<F::Key, F::Acc>,
    /// The next slot to emit.
    next: usize,
    /// Serializers of keys and accumulators. `None` if the state cannot be checkpointed.
    kept: Option<StateCodecs<F::Key, F::Acc>>,
    snapshots: Option<Box<GroupSnapshots<F::Key, F::Acc>>>,
}

/// The snapshot state of a group.
struct GroupSnapshots<K, A> {
    log: SnapshotLog,
    stamps: ChangeStamps,
    kept: StateCodecs<K, A>,
    /// The generation (interval between snapshots) in which all results were emitted.
    ended_in: Option<u32>,
}

/// The maximum number of slots scanned per call while a snapshot is taken.
const PLACES_PER_CALL: usize = 8 * 1024;

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
struct TakeGroup<'a, F: KeyedFold> {
    fold: &'a F,
    keys: &'a mut KeyTable<F::Key, F::Acc>,
    snapshots: Option<&'a mut GroupSnapshots<F::Key, F::Acc>>,
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
            snapshots,
            inbox,
        } = self;
        let rows = inbox.rows::<I::Record>()?;
        let key = |record| feed.key(record);
        let create = || fold.create();
        let update = |acc: &mut F::Acc, record| feed.accumulate(acc, record);
        match snapshots {
            None => keys.update_each(rows.values(), 0, key, create, update),
            Some(GroupSnapshots {
                log, stamps, kept, ..
            }) if stamps.are_fresh(log) => {
                let mut watch = TrackInserts::new(stamps, log);
                keys.update_watched(rows.values(), 0, key, create, update, &mut watch);
            }
            Some(GroupSnapshots {
                log, stamps, kept, ..
            }) => {
                let write = |chunk: &mut StateChunk, key: &F::Key, acc: &F::Acc| {
                    kept.write(STATE, chunk, key, acc, |_| {})
                };
                let mut watch = TrackChanges { stamps, log, write };
                keys.update_watched(rows.values(), 0, key, create, update, &mut watch);
            }
        }
        rows.clear();
        Ok(())
    }
}

impl<F: KeyedFold> GroupP<F> {
    /// Creates a group that aggregates by `fold`.
    pub fn new(fold: Arc<F>) -> Self {
        GroupP {
            fold,
            keys: KeyTable::default(),
            next: 0,
            kept: None,
            snapshots: None,
        }
    }

    /// Sets the serializers of keys and accumulators, so that the state is checkpointed.
    pub fn with_codecs(mut self, kept: StateCodecs<F::Key, F::Acc>) -> Self {
        self.kept = Some(kept);
        self
    }
}

impl<K: Key, A> GroupSnapshots<K, A> {
    fn write_snapshot(
        &mut self,
        keys: &KeyTable<K, A>,
        writer: &mut SnapshotWriter<'_>,
    ) -> Result<Progress> {
        let Some(snapshot) = self.log.write_aside(writer)? else {
            return Ok(Progress::DONE);
        };
        let (stamps, kept) = (&mut self.stamps, &self.kept);
        let mut left = PLACES_PER_CALL;
        let was_there = self.ended_in.is_none_or(|ended| snapshot.is_before(ended));
        let is_written = match was_there {
            true => stamps.write(snapshot, &mut left, writer, |chunk, at| {
                kept.write(STATE, chunk, &keys.keys()[at], &keys.values()[at], |_| {})
            })?,
            false if !snapshot.names_removed() => true,
            false => stamps.write_all(snapshot, &mut left, writer, |chunk, at| {
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
        self.snapshots = kept.map(|kept| {
            Box::new(GroupSnapshots {
                log: SnapshotLog::default(),
                stamps: ChangeStamps::default(),
                kept,
                ended_in: None,
            })
        });
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let (fold, keys) = (&*self.fold, &mut self.keys);
        let snapshots = self.snapshots.as_deref_mut();
        let take = TakeGroup {
            fold,
            keys,
            snapshots,
            inbox,
        };
        fold.visit(input, take)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        end_of_time(self, watermark, outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self
            .snapshots
            .as_ref()
            .is_some_and(|snapshots| snapshots.ended_in.is_some())
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
            match &mut self.snapshots {
                // A snapshot may still need the removed keys.
                Some(snapshots) => snapshots.ended_in = Some(snapshots.log.generation()),
                None => self.keys.clear(),
            }
        }
        Ok(Progress {
            made: made || done,
            done,
        })
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        unsaved_without(self.kept.as_ref())
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<F: KeyedFold> Checkpointed for GroupP<F> {
    fn states(&mut self) -> Vec<StateShape> {
        self.kept.iter().map(|kept| kept.shape(STATE)).collect()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.log.take_snapshot(snapshot);
        }
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let Some(snapshots) = &mut self.snapshots else {
            return Ok(Progress::DONE);
        };
        let written = snapshots.write_snapshot(&self.keys, writer);
        if written.is_err() {
            snapshots.log.end();
        }
        written
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.log.commit(epoch);
        }
        Ok(Progress::DONE)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.log.abort(epoch);
        }
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let Some(snapshots) = &self.snapshots else {
                return Err(RestoredState::unknown(&entry));
            };
            let (key, acc, _) = snapshots.kept.read(STATE, &entry)?;
            let place = self.keys.len() as u32;
            if self.keys.get_or_insert(Cow::Owned(key), || acc).0 != place {
                return Err(duplicate_entry());
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.stamps = ChangeStamps::restored(self.keys.len());
        }
        Ok(Progress::DONE)
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
        let take = TakeGroup {
            fold,
            keys,
            snapshots: None,
            inbox,
        };
        fold.visit(input, take)
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
