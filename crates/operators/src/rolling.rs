//! Running aggregates: a result for every record.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Cut, CutWriter, Epoch, Error, ErrorCode, Inbox, InstanceContext, InstanceMetrics, Key, Ordinal,
    Outbox, PartitionId, Processor, Progress, RecordGuard, RestoredEntry, RestoredState, Result,
    StateChunk, StateShape, Timestamp, Watermark,
};

use crate::keyed::{Aside, Due, Dues, KeptAs, KeyedStates, STATE, put_time, unless_kept};
use crate::{Feed, FeedVisitor, KeyedFold};

/// How many keys one call looks at for their time-to-live.
const KEYS_PER_CALL: usize = 4096;
/// How many of those that lie on disk.
const KEYS_FROM_DISK_PER_CALL: usize = 64;

/// What is remembered of a key.
struct Rolling<A> {
    acc: A,
    /// The greatest event time of its records.
    last: Timestamp,
}

/// Aggregates all records of each key so far; emits `(key, result)` for every record, with the record's time.
///
/// With a time-to-live, a key that has had no record for longer than that, in event time, starts anew; memory is given
/// back as the watermark passes, at the latest a quarter of the time-to-live after it is over. So long as the watermark holds,
/// results do not depend on when that happens.
///
/// ```
/// use std::sync::Arc;
/// use ardea_aggregate::sum;
/// use ardea_operators::{FoldOne, RollingP};
///
/// let spent = FoldOne::new(|order: &(u64, u64)| order.0, sum(|order: &(u64, u64)| order.1));
/// let running_totals = RollingP::new(Arc::new(spent));
/// ```
pub struct RollingP<F: KeyedFold> {
    fold: Arc<F>,
    keys: KeyedStates<F::Key, Rolling<F::Acc>>,
    /// How it is written what has to survive it.
    kept: Option<KeptAs<F::Key, F::Acc>>,
    ttl: Option<Duration>,
    /// The watermark up to which keys that outlived their time have been forgotten.
    swept: Timestamp,
    /// The next slot to look at, while a sweep is under way.
    sweeping: Option<usize>,
    /// Records that wait for their partition, by input.
    asides: Asides,
    metrics: Arc<InstanceMetrics>,
}

impl<F: KeyedFold> RollingP<F> {
    /// Aggregates by `fold`.
    pub fn new(fold: Arc<F>) -> Self {
        RollingP {
            fold,
            keys: KeyedStates::default(),
            kept: None,
            ttl: None,
            swept: Timestamp::MIN,
            sweeping: None,
            asides: BTreeMap::new(),
            metrics: Arc::default(),
        }
    }

    /// Forgets keys that have had no record for longer than `ttl`, in event time.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Says how its keys and accumulators are written, so that they survive it.
    pub fn kept_as(mut self, kept: KeptAs<F::Key, F::Acc>) -> Self {
        self.kept = Some(kept);
        self
    }

    /// The processor in two parts that can be borrowed apart.
    fn till(&mut self) -> (Till<'_, F>, &mut Asides) {
        let till = Till {
            fold: &*self.fold,
            keys: &mut self.keys,
            kept: &self.kept,
            ttl: self.ttl,
        };
        (till, &mut self.asides)
    }

    /// Moves keys to disk if memory is short.
    fn relieve(&mut self) -> Result<()> {
        let (kept, ttl) = (&self.kept, self.ttl);
        self.keys.relieve(|chunk, key, _, rolling| {
            write(kept, chunk, key, rolling)?;
            let expiry = ttl.map(|ttl| (rolling.last + ttl).as_micros());
            Ok(Dues::of(None, None, expiry))
        })
    }

    /// Forgets keys on disk whose time was over at `now`; whether there are no more.
    fn sweep_disk(&mut self, now: Timestamp) -> Result<bool> {
        let (kept, until) = (&self.kept, now.as_micros().saturating_sub(1));
        let over = self.keys.load_due(
            (Due::Expiry, until, KEYS_FROM_DISK_PER_CALL),
            |entry| key_of(kept, entry),
            |_, entry| thaw(kept, entry),
        )?;
        for slot in &over {
            self.keys.touch(*slot, |chunk, key, rolling| {
                write(kept, chunk, key, rolling)
            });
            self.keys.remove(*slot);
        }
        Ok(over.len() < KEYS_FROM_DISK_PER_CALL)
    }

    /// Forgets keys whose time was over at `now`; whether all have been looked at.
    fn sweep(&mut self, ttl: Duration, now: Timestamp) -> bool {
        let first = match self.sweeping {
            Some(slot) => slot,
            None if now <= self.swept + ttl / 4 => return true,
            None => 0,
        };
        let slots = self.keys.slots();
        let after = slots.min(first + KEYS_PER_CALL);
        for slot in first as u32..after as u32 {
            let is_over = |rolling: &Rolling<F::Acc>| rolling.last + ttl < now;
            if self.keys.get(slot).is_some_and(is_over) {
                let kept = &self.kept;
                self.keys
                    .touch(slot, |chunk, key, rolling| write(kept, chunk, key, rolling));
                self.keys.remove(slot);
            }
        }
        self.sweeping = (after < slots).then_some(after);
        if after == slots {
            self.swept = now;
        }
        after == slots
    }
}

/// Appends the entry of a key.
fn write<K: Key, A>(
    kept: &Option<KeptAs<K, A>>,
    chunk: &mut StateChunk,
    key: &K,
    rolling: &Rolling<A>,
) -> Result<()> {
    match kept {
        Some(kept) => kept.write(chunk, key, &rolling.acc, |out| put_time(out, rolling.last)),
        None => Ok(()),
    }
}

/// The key of an entry.
fn key_of<K: Key, A>(kept: &Option<KeptAs<K, A>>, entry: &RestoredEntry<'_>) -> Result<K> {
    let kept = kept.as_ref().ok_or_else(|| RestoredState::unknown(entry))?;
    kept.read_as(STATE, entry).map(|(key, _)| key)
}

/// What an entry says of its key.
fn thaw<K: Key, A>(kept: &Option<KeptAs<K, A>>, entry: &RestoredEntry<'_>) -> Result<Rolling<A>> {
    let kept = kept.as_ref().ok_or_else(|| RestoredState::unknown(entry))?;
    let (_, acc, mut rest) = kept.read(entry)?;
    let last = rest.time()?;
    Ok(Rolling { acc, last })
}

/// What dealing with records needs.
struct Till<'a, F: KeyedFold> {
    fold: &'a F,
    keys: &'a mut KeyedStates<F::Key, Rolling<F::Acc>>,
    kept: &'a Option<KeptAs<F::Key, F::Acc>>,
    ttl: Option<Duration>,
}

impl<F: KeyedFold> Till<'_, F> {
    /// Deals with one record: its result.
    #[inline]
    fn take<I>(&mut self, feed: &I, record: &I::Record, time: Timestamp) -> Result<(F::Key, F::Out)>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>,
    {
        let (fold, kept) = (self.fold, self.kept);
        let key = feed.key(record);
        let create = || Rolling {
            acc: fold.create(),
            last: time,
        };
        let thaw = |_: u32, entry: &RestoredEntry<'_>| thaw(kept, entry);
        let keys = &mut *self.keys;
        let slot = keys.slot_or_load(Cow::Borrowed(&*key), create, thaw)?;
        keys.touch(slot, |chunk, key, rolling| write(kept, chunk, key, rolling));
        let Some((_, rolling)) = keys.get_mut(slot) else {
            return Err(Error::new(ErrorCode::Internal, "a key has no state"));
        };
        if self.ttl.is_some_and(|ttl| rolling.last + ttl < time) {
            rolling.acc = fold.create();
        }
        rolling.last = rolling.last.max(time);
        feed.accumulate(&mut rolling.acc, record);
        Ok((key.into_owned(), fold.finish(&rolling.acc)))
    }
}

/// Records that wait for their partition, by input.
type Asides = BTreeMap<u16, Box<dyn Any + Send>>;

/// Those of an input.
fn aside_of<R: Send + 'static>(asides: &mut Asides, input: Ordinal) -> Result<&mut Aside<R>> {
    let aside = asides.entry(input.0);
    let aside = aside.or_insert_with(|| Box::new(Aside::<R>::default()));
    aside.downcast_mut().ok_or_else(|| {
        let what = format!("input {} has records of two types", input.0);
        Error::new(ErrorCode::Internal, what)
    })
}

/// Takes records as far as there is room for their results.
struct TakeRolling<'a, F: KeyedFold> {
    till: Till<'a, F>,
    asides: &'a mut Asides,
    input: Ordinal,
    inbox: &'a mut Inbox,
    outbox: &'a mut Outbox,
}

impl<F: KeyedFold> FeedVisitor<F> for TakeRolling<'_, F> {
    type Output = ();

    fn visit<I>(self, feed: &I) -> Result<()>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>,
    {
        let mut till = self.till;
        let mut lane = self.outbox.lane::<(F::Key, F::Out)>(Ordinal::FIRST)?;
        let rows = self.inbox.rows::<I::Record>()?;
        let count = rows.len().min(lane.room());
        let mut guard = RecordGuard::new();
        if till.keys.is_away() {
            let aside = aside_of(self.asides, self.input)?;
            let is_full = aside.is_full(till.keys.most_aside());
            let count = if is_full { 0 } else { count };
            for (record, time) in rows.drain_front(count) {
                let partition = PartitionId::of(&*feed.key(&record));
                match till.keys.puts_aside(partition) {
                    true => aside.put(partition, record, time),
                    false => lane.push(till.take(feed, &record, time)?, time),
                }
                guard.advance();
            }
            return Ok(());
        }
        for (record, time) in rows.iter().take(count) {
            lane.push(till.take(feed, record, time)?, time);
            guard.advance();
        }
        if count == rows.len() {
            rows.clear();
        } else {
            rows.discard_front(count);
        }
        Ok(())
    }
}

/// Takes the records of a partition that are aside, as far as there is room for their results; whether none is left.
struct TakeAside<'a, F: KeyedFold> {
    till: Till<'a, F>,
    asides: &'a mut Asides,
    input: Ordinal,
    partition: PartitionId,
    outbox: &'a mut Outbox,
}

impl<F: KeyedFold> FeedVisitor<F> for TakeAside<'_, F> {
    type Output = bool;

    fn visit<I>(self, feed: &I) -> Result<bool>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>,
    {
        let mut till = self.till;
        let mut lane = self.outbox.lane::<(F::Key, F::Out)>(Ordinal::FIRST)?;
        let aside = aside_of::<I::Record>(self.asides, self.input)?;
        while !lane.is_full() {
            let Some((record, time)) = aside.take(self.partition) else {
                return Ok(true);
            };
            lane.push(till.take(feed, &record, time)?, time);
        }
        Ok(false)
    }
}

impl<F: KeyedFold> Processor for RollingP<F> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.metrics = Arc::clone(&context.metrics);
        self.keys.attach(context, self.kept.is_some())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.relieve()?;
        let (till, asides) = self.till();
        let fold = till.fold;
        let visited = fold.visit(
            input,
            TakeRolling {
                till,
                asides,
                input,
                inbox,
                outbox,
            },
        );
        let kept = &self.kept;
        self.keys.account(&self.metrics, |chunk, key, _, rolling| {
            write(kept, chunk, key, rolling)
        });
        visited
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if self.keys.is_away() {
            // It is told again when all are back, and nobody need be forgotten before.
            return Ok(Progress::DONE);
        }
        if let Some(ttl) = self.ttl {
            self.relieve()?;
            // At the end of the input what is on disk goes with the disk.
            let is_end = watermark == Watermark::END;
            if !is_end && !self.sweep_disk(watermark.0)? || !self.sweep(ttl, watermark.0) {
                return Ok(Progress::MADE);
            }
        }
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn forgets(&self) -> Option<&'static str> {
        unless_kept(self.kept.as_ref())
    }

    fn states(&self) -> Vec<StateShape> {
        self.kept.iter().map(|kept| kept.shape(STATE)).collect()
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.keys.take_cut(cut)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let kept = &self.kept;
        self.keys.write_cut(writer, |chunk, key, _, rolling| {
            write(kept, chunk, key, rolling)
        })
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.keys.commit(epoch)
    }

    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.keys.give_up(epoch))
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let Some(kept) = &self.kept else {
                return Err(RestoredState::unknown(&entry));
            };
            let (key, acc, mut rest) = kept.read(&entry)?;
            let last = rest.time()?;
            self.keys.weigh(&entry);
            self.keys.restore(key, Rolling { acc, last })?;
            self.relieve()?;
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.keys.are_back();
        Ok(Progress::DONE)
    }

    fn begins_early(&mut self, entries: u64) -> bool {
        self.keys.begin_early(entries, self.kept.is_some())
    }

    fn on_partition_restored(&mut self, partition: PartitionId) -> Result<()> {
        self.keys.come_back(partition);
        Ok(())
    }

    fn catch_up(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if !outbox.has_room(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        let fold = Arc::clone(&self.fold);
        let mut made = false;
        while let Some(partition) = self.keys.behind() {
            made = true;
            for input in self.asides.keys().copied().map(Ordinal).collect::<Vec<_>>() {
                let (till, asides) = self.till();
                let taking = TakeAside {
                    till,
                    asides,
                    input,
                    partition,
                    outbox,
                };
                if !fold.visit(input, taking)? {
                    return Ok(Progress::MADE);
                }
            }
            self.keys.catch_up();
        }
        Ok(Progress { made, done: true })
    }

    fn take_wanted(&mut self, wanted: &mut Vec<PartitionId>) {
        self.keys.take_wanted(wanted);
    }

    fn hand_over(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn take_over(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        self.keys = before.keys;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FoldOne;
    use crate::window::drive::{Step, drive, untimed};
    use ardea_aggregate::count;

    fn count_by_key() -> Arc<impl KeyedFold<Key = u64, Out = u64>> {
        Arc::new(FoldOne::new(|key: &u64| *key, count()))
    }

    #[test]
    fn every_record_has_a_result_with_its_time() {
        let steps = [Step::rows(&[(7, 1), (3, 2), (7, 9)]), Step::rows(&[(7, 4)])];
        let out = drive(RollingP::new(count_by_key()), &steps, 1);
        assert_eq!(
            out.timed::<(u64, u64)>(0),
            [((7, 1), 1), ((3, 1), 2), ((7, 2), 9), ((7, 3), 4)]
        );
    }

    #[test]
    fn a_key_that_was_silent_for_too_long_starts_anew_with_or_without_a_watermark() {
        let rolling = || RollingP::new(count_by_key()).ttl(Duration::from_micros(10));
        let expected = [(7, 1), (7, 2), (7, 1), (7, 2)];
        let steps = [Step::rows(&[(7, 1), (7, 11), (7, 22), (7, 12)])];
        assert_eq!(
            untimed(drive(rolling(), &steps, 9).timed::<(u64, u64)>(0)),
            expected
        );
        let steps = [
            Step::rows(&[(7, 1), (7, 11)]),
            Step::Watermark(22),
            Step::rows(&[(7, 22), (7, 32)]),
        ];
        assert_eq!(
            untimed(drive(rolling(), &steps, 9).timed::<(u64, u64)>(0)),
            expected
        );
    }

    #[test]
    fn silent_keys_give_their_memory_back() {
        let mut rolling = RollingP::new(count_by_key()).ttl(Duration::from_micros(10));
        for round in 0..100i64 {
            let rows: Vec<_> = (0..100)
                .map(|key| (round as u64 * 100 + key, round * 10))
                .collect();
            crate::window::drive::run(
                &mut rolling,
                &[Step::rows(&rows), Step::Watermark(round * 10)],
                2000,
            );
        }
        assert!(rolling.keys.len() <= 300, "{}", rolling.keys.len());
        assert!(rolling.keys.slots() <= 400);
    }
}
