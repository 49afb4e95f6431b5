//! Running aggregates: one result per record.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Inbox, InstanceContext, InstanceMetrics, Key, Ordinal,
    Outbox, PartitionId, PartitionRestore, Processor, Progress, RecordGuard, RestoredEntry,
    RestoredState, Result, SnapshotRequest, SnapshotWriter, StateChunk, StateShape, Timestamp,
    Watermark,
};

use crate::keyed::{
    BufferedRecords, DueKind, DueTimes, KeyedStates, STATE, StateCodecs, forgotten_without,
    put_time,
};
use crate::{Feed, FeedVisitor, KeyedFold};

/// The maximum number of keys checked for expiry per call.
const KEYS_PER_CALL: usize = 4096;
/// The maximum number of expired keys loaded from disk per call.
const KEYS_FROM_DISK_PER_CALL: usize = 64;

/// The state of a key.
struct Rolling<A> {
    acc: A,
    /// The latest event time of the key's records.
    last: Timestamp,
}

/// Aggregates the records of each key so far. Emits `(key, result)` for every record, with the
/// record's event time.
///
/// With a time-to-live (TTL), the state of a key is reset when the key has had no record for longer
/// than the TTL, in event time. Its memory is released as the watermark advances, at most a quarter
/// of the TTL after expiry. Results do not depend on the time of release as long as no record is
/// late.
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
    /// Serializers of keys and accumulators. `None` if the state cannot be checkpointed.
    kept: Option<StateCodecs<F::Key, F::Acc>>,
    ttl: Option<Duration>,
    /// The watermark up to which expired keys have been removed.
    swept: Timestamp,
    /// The next slot to check, while a sweep is in progress.
    sweeping: Option<usize>,
    /// Buffered records whose partition is not restored yet, by input.
    buffered: BufferedInputs,
    metrics: Arc<InstanceMetrics>,
}

impl<F: KeyedFold> RollingP<F> {
    /// Creates a running aggregate by `fold`.
    pub fn new(fold: Arc<F>) -> Self {
        RollingP {
            fold,
            keys: KeyedStates::default(),
            kept: None,
            ttl: None,
            swept: Timestamp::MIN,
            sweeping: None,
            buffered: BTreeMap::new(),
            metrics: Arc::default(),
        }
    }

    /// Sets the time-to-live: a key without records for longer than `ttl` of event time is reset.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the serializers of keys and accumulators, so that the state is checkpointed.
    pub fn with_codecs(mut self, kept: StateCodecs<F::Key, F::Acc>) -> Self {
        self.kept = Some(kept);
        self
    }

    /// Splits the processor into two parts that can be borrowed separately.
    fn split_parts(&mut self) -> (RollingUpdate<'_, F>, &mut BufferedInputs) {
        let till = RollingUpdate {
            fold: &*self.fold,
            keys: &mut self.keys,
            kept: &self.kept,
            ttl: self.ttl,
        };
        (till, &mut self.buffered)
    }

    /// Spills keys to disk if memory is short.
    fn spill(&mut self) -> Result<()> {
        let (kept, ttl) = (&self.kept, self.ttl);
        self.keys.spill(|chunk, key, _, rolling| {
            write(kept, chunk, key, rolling)?;
            let expiry = ttl.map(|ttl| (rolling.last + ttl).as_micros());
            Ok(DueTimes::of(None, None, expiry))
        })
    }

    /// Removes keys on disk that had expired at `now`. Returns true if no expired keys are left
    /// there.
    fn sweep_disk(&mut self, now: Timestamp) -> Result<bool> {
        let (kept, until) = (&self.kept, now.as_micros().saturating_sub(1));
        let over = self.keys.load_due(
            (DueKind::Expiry, until, KEYS_FROM_DISK_PER_CALL),
            |entry| key_of(kept, entry),
            |_, entry| decode(kept, entry),
        )?;
        for slot in &over {
            self.keys.touch(*slot, |chunk, key, rolling| {
                write(kept, chunk, key, rolling)
            });
            self.keys.remove(*slot);
        }
        Ok(over.len() < KEYS_FROM_DISK_PER_CALL)
    }

    /// Removes keys that had expired at `now`. Returns true once all keys have been checked.
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

/// Appends the entry of a key to `chunk`.
fn write<K: Key, A>(
    kept: &Option<StateCodecs<K, A>>,
    chunk: &mut StateChunk,
    key: &K,
    rolling: &Rolling<A>,
) -> Result<()> {
    match kept {
        Some(kept) => kept.write(chunk, key, &rolling.acc, |out| put_time(out, rolling.last)),
        None => Ok(()),
    }
}

/// Returns the key of an entry.
fn key_of<K: Key, A>(kept: &Option<StateCodecs<K, A>>, entry: &RestoredEntry<'_>) -> Result<K> {
    let kept = kept.as_ref().ok_or_else(|| RestoredState::unknown(entry))?;
    kept.read_as(STATE, entry).map(|(key, _)| key)
}

/// Decodes the state of a key from its entry.
fn decode<K: Key, A>(
    kept: &Option<StateCodecs<K, A>>,
    entry: &RestoredEntry<'_>,
) -> Result<Rolling<A>> {
    let kept = kept.as_ref().ok_or_else(|| RestoredState::unknown(entry))?;
    let (_, acc, mut rest) = kept.read(entry)?;
    let last = rest.time()?;
    Ok(Rolling { acc, last })
}

/// Borrowed parts of the processor that update the state of a record's key.
struct RollingUpdate<'a, F: KeyedFold> {
    fold: &'a F,
    keys: &'a mut KeyedStates<F::Key, Rolling<F::Acc>>,
    kept: &'a Option<StateCodecs<F::Key, F::Acc>>,
    ttl: Option<Duration>,
}

impl<F: KeyedFold> RollingUpdate<'_, F> {
    /// Adds one record and returns its result.
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
        let thaw = |_: u32, entry: &RestoredEntry<'_>| decode(kept, entry);
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

/// Buffered records whose partition is not restored yet, by input.
type BufferedInputs = BTreeMap<u16, Box<dyn Any + Send>>;

/// Returns the buffered records of an input.
fn buffered_of<R: Send + 'static>(
    asides: &mut BufferedInputs,
    input: Ordinal,
) -> Result<&mut BufferedRecords<R>> {
    let aside = asides.entry(input.0);
    let aside = aside.or_insert_with(|| Box::new(BufferedRecords::<R>::default()));
    aside.downcast_mut().ok_or_else(|| {
        let what = format!("input {} has records of two types", input.0);
        Error::new(ErrorCode::Internal, what)
    })
}

/// A visitor that processes records as far as there is room for their results.
struct TakeRolling<'a, F: KeyedFold> {
    till: RollingUpdate<'a, F>,
    buffered: &'a mut BufferedInputs,
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
        if till.keys.is_restoring() {
            let aside = buffered_of(self.buffered, self.input)?;
            let is_full = aside.is_full(till.keys.max_buffered());
            let count = if is_full { 0 } else { count };
            for (record, time) in rows.drain_front(count) {
                let partition = PartitionId::of(&*feed.key(&record));
                match till.keys.must_buffer(partition) {
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

/// A visitor that processes the buffered records of a partition while there is room for their
/// results. Returns true if no buffered records are left.
struct ProcessBuffered<'a, F: KeyedFold> {
    till: RollingUpdate<'a, F>,
    buffered: &'a mut BufferedInputs,
    input: Ordinal,
    partition: PartitionId,
    outbox: &'a mut Outbox,
}

impl<F: KeyedFold> FeedVisitor<F> for ProcessBuffered<'_, F> {
    type Output = bool;

    fn visit<I>(self, feed: &I) -> Result<bool>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>,
    {
        let mut till = self.till;
        let mut lane = self.outbox.lane::<(F::Key, F::Out)>(Ordinal::FIRST)?;
        let aside = buffered_of::<I::Record>(self.buffered, self.input)?;
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
        self.spill()?;
        let (till, asides) = self.split_parts();
        let fold = till.fold;
        let visited = fold.visit(
            input,
            TakeRolling {
                till,
                buffered: asides,
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
        if self.keys.is_restoring() {
            // The watermark is delivered again once all state is restored. No key has to expire
            // before that.
            return Ok(Progress::DONE);
        }
        if let Some(ttl) = self.ttl {
            self.spill()?;
            // At the end of the input, the disk state is deleted as a whole.
            let is_end = watermark == Watermark::END;
            if !is_end && !self.sweep_disk(watermark.0)? || !self.sweep(ttl, watermark.0) {
                return Ok(Progress::MADE);
            }
        }
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        forgotten_without(self.kept.as_ref())
    }

    fn catch_up(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if !outbox.has_room(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        let fold = Arc::clone(&self.fold);
        let mut made = false;
        while let Some(partition) = self.keys.next_buffered_partition() {
            made = true;
            for input in self
                .buffered
                .keys()
                .copied()
                .map(Ordinal)
                .collect::<Vec<_>>()
            {
                let (till, asides) = self.split_parts();
                let taking = ProcessBuffered {
                    till,
                    buffered: asides,
                    input,
                    partition,
                    outbox,
                };
                if !fold.visit(input, taking)? {
                    return Ok(Progress::MADE);
                }
            }
            self.keys.finish_buffered_partition();
        }
        Ok(Progress { made, done: true })
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<F: KeyedFold> Checkpointed for RollingP<F> {
    fn states(&self) -> Vec<StateShape> {
        self.kept.iter().map(|kept| kept.shape(STATE)).collect()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.keys.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let kept = &self.kept;
        self.keys.write_snapshot(writer, |chunk, key, _, rolling| {
            write(kept, chunk, key, rolling)
        })
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.keys.commit(epoch)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.keys.abort(epoch))
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
            self.spill()?;
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.keys.all_restored();
        Ok(Progress::DONE)
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        self.keys = before.keys;
        true
    }

    fn partitioned_restore(&mut self) -> Option<&mut dyn PartitionRestore> {
        Some(self)
    }
}

impl<F: KeyedFold> PartitionRestore for RollingP<F> {
    fn enable_lazy_restore(&mut self, entries: u64) -> bool {
        self.keys.begin_early(entries, self.kept.is_some())
    }

    fn on_partition_restored(&mut self, partition: PartitionId) -> Result<()> {
        self.keys.partition_restored(partition);
        Ok(())
    }

    fn take_requested_partitions(&mut self, wanted: &mut Vec<PartitionId>) {
        self.keys.take_wanted(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FoldOne;
    use crate::window::test_driver::{Step, drive, untimed};
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
            crate::window::test_driver::run(
                &mut rolling,
                &[Step::rows(&rows), Step::Watermark(round * 10)],
                2000,
            );
        }
        assert!(rolling.keys.len() <= 300, "{}", rolling.keys.len());
        assert!(rolling.keys.slots() <= 400);
    }
}
