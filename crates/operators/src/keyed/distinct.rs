//! Deduplication by key.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, InstanceMetrics, Key, Ordinal, Outbox,
    PartitionId, PartitionRestore, Processor, Progress, RecordGuard, RestoredEntry, RestoredState,
    Result, SnapshotRequest, SnapshotWriter, StateChunk, StateShape, Timestamp, Watermark,
};

use crate::forward::{pass_front, passable, remove_at};
use crate::keyed::{
    DueKind, DueTimes, KeyedStates, STATE, StateCodecs, TimerSet, forgotten_without, put_time,
};

/// The maximum number of keys that expire per call.
const FORGOTTEN_PER_CALL: usize = 4096;
/// The maximum number of expired keys loaded from disk per call.
const FROM_DISK_PER_CALL: usize = 64;

/// Forwards the first record of each key and drops the others.
///
/// All keys are retained, unless [`within`](DistinctP::within) sets a time span. A record is then
/// forwarded if its event time is at least that span after the last forwarded record of its key. A
/// key expires when the watermark is that far ahead. On an unbounded stream with ever new keys,
/// only a time span bounds the memory.
///
/// Records must have [`Keyed`](ardea_core::Routing::Keyed) routing by the same key. To deduplicate
/// whole records, let the key function clone the record.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::DistinctP;
///
/// let mut inbox = Inbox::default();
/// let words = ["to", "be", "or", "not", "to", "be"].map(|word| (word, Timestamp::MIN));
/// inbox.fill(Chunk::new(Rows::from_iter(words)));
/// let mut outbox = Outbox::new(1, 16);
///
/// DistinctP::new(Arc::new(|word: &&'static str| *word)).process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<&str>(Ordinal::FIRST)?.rows().values(), ["to", "be", "or", "not"]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct DistinctP<T, K, F> {
    key: Arc<F>,
    span: Option<Duration>,
    /// Per key, the event time of the last forwarded record.
    passed: KeyedStates<K, Timestamp>,
    ends: TimerSet<Timestamp>,
    watermark: Watermark,
    /// The serializer of keys. `None` if the state is not checkpointed.
    kept: Option<StateCodecs<K, ()>>,
    /// Batch indexes of the duplicates. Empty between calls.
    repeated: Vec<usize>,
    metrics: Arc<InstanceMetrics>,
    records: PhantomData<fn(T)>,
}

impl<T, K, F> DistinctP<T, K, F>
where
    K: Key,
    F: Fn(&T) -> K,
{
    /// Creates an operator that deduplicates by `key`, which instances share.
    pub fn new(key: Arc<F>) -> Self {
        DistinctP {
            key,
            span: None,
            passed: KeyedStates::default(),
            ends: TimerSet::default(),
            watermark: Watermark::NONE,
            kept: None,
            repeated: Vec::new(),
            metrics: Arc::default(),
            records: PhantomData,
        }
    }

    /// Forwards a record of a key again if at least `span` of event time has passed since the last
    /// forwarded one.
    pub fn within(mut self, span: Duration) -> Self {
        self.span = Some(span);
        self
    }

    /// Sets the serializer of keys, so that the state is checkpointed.
    pub fn with_codecs(mut self, kept: StateCodecs<K, ()>) -> Self {
        self.kept = Some(kept);
        self
    }

    /// Returns the number of retained keys.
    pub fn keys(&self) -> usize {
        self.passed.len()
    }

    /// Returns true if a record of `key` at `time` is not a duplicate, and stores `time`.
    #[inline]
    fn passes(&mut self, key: K, time: Timestamp) -> Result<bool> {
        // A late record, or one without event time, counts as of the current watermark.
        let time = time.max(self.watermark.0);
        let mut is_new = false;
        let create = || {
            is_new = true;
            time
        };
        let (kept, ends, span) = (&self.kept, &mut self.ends, self.span);
        let thaw = |slot: u32, entry: &RestoredEntry<'_>| decode(kept, ends, span, slot, entry);
        let slot = self.passed.slot_or_load(Cow::Owned(key), create, thaw)?;
        let Some(span) = self.span else {
            return Ok(is_new);
        };
        if !is_new {
            let passed = self.passed.get(slot).copied().unwrap_or(time);
            if time < passed + span {
                return Ok(false);
            }
            self.touch(slot);
            self.ends.clear(slot, passed + span);
            if let Some((_, passed)) = self.passed.get_mut(slot) {
                *passed = time;
            }
        }
        self.ends.set(slot, time + span);
        Ok(true)
    }

    /// Prepares the state of a key for a change: a snapshot in progress retains the old contents.
    fn touch(&mut self, slot: u32) {
        let kept = &self.kept;
        self.passed
            .touch(slot, |chunk, key, passed| write(kept, chunk, key, *passed));
    }

    /// Spills keys to disk if memory is short.
    fn spill(&mut self) -> Result<()> {
        let (kept, ends, span) = (&self.kept, &mut self.ends, self.span);
        self.passed.spill(|chunk, key, slot, passed| {
            write(kept, chunk, key, *passed)?;
            ends.forget(slot);
            let end = span.map(|span| (*passed + span).as_micros());
            Ok(DueTimes::of(None, None, end))
        })
    }

    /// Loads some of the expired keys from disk. Returns true if no expired keys are left there.
    fn load_expired(&mut self, watermark: Watermark) -> Result<bool> {
        let (kept, ends, span) = (&self.kept, &mut self.ends, self.span);
        let over = self.passed.load_due(
            (DueKind::Expiry, watermark.0.as_micros(), FROM_DISK_PER_CALL),
            |entry| {
                let kept = kept.as_ref().ok_or_else(|| RestoredState::unknown(entry))?;
                kept.read_as(STATE, entry).map(|(key, _)| key)
            },
            |slot, entry| decode(kept, ends, span, slot, entry),
        )?;
        Ok(over.len() < FROM_DISK_PER_CALL)
    }
}

/// Decodes the entry of a key that is assigned to a slot.
fn decode<K: Key>(
    kept: &Option<StateCodecs<K, ()>>,
    ends: &mut TimerSet<Timestamp>,
    span: Option<Duration>,
    slot: u32,
    entry: &RestoredEntry<'_>,
) -> Result<Timestamp> {
    let kept = kept.as_ref().ok_or_else(|| RestoredState::unknown(entry))?;
    let (_, (), mut rest) = kept.read(entry)?;
    let passed = rest.time()?;
    if let Some(span) = span {
        ends.set(slot, passed + span);
    }
    Ok(passed)
}

/// Appends the entry of a key: the time of its last forwarded record.
fn write<K: Key>(
    kept: &Option<StateCodecs<K, ()>>,
    chunk: &mut StateChunk,
    key: &K,
    passed: Timestamp,
) -> Result<()> {
    match kept {
        Some(kept) => kept.write(chunk, key, &(), |out| put_time(out, passed)),
        None => Ok(()),
    }
}

impl<T, K, F> Processor for DistinctP<T, K, F>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.metrics = Arc::clone(&context.metrics);
        self.passed.attach(context, self.kept.is_some())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.spill()?;
        let mut count = passable::<T>(inbox, outbox, Ordinal::FIRST)?;
        let key = Arc::clone(&self.key);
        if self.passed.is_restoring() {
            let records = inbox.rows::<T>()?.values();
            let ready = self
                .passed
                .ready(records.iter().map(|it| Cow::Owned(key(it))));
            if ready < inbox.len() {
                let room = outbox.lane::<T>(Ordinal::FIRST)?.room();
                count = count.min(ready).min(room);
            }
        }
        let mut guard = RecordGuard::new();
        for (index, (record, time)) in inbox.rows::<T>()?.iter().take(count).enumerate() {
            if !self.passes(key(record), time)? {
                self.repeated.push(index);
            }
            guard.advance();
        }
        let kept = &self.kept;
        self.passed.account(&self.metrics, |chunk, key, _, passed| {
            write(kept, chunk, key, *passed)
        });
        let removed = remove_at::<T>(inbox, &mut self.repeated)?;
        pass_front::<T>(inbox, outbox, Ordinal::FIRST, count - removed)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.watermark = watermark;
        self.spill()?;
        // At the end of the input, the disk state is deleted as a whole.
        let has_all = watermark == Watermark::END || self.load_expired(watermark)?;
        for _ in 0..FORGOTTEN_PER_CALL {
            let Some((_, slot)) = self.ends.pop_due(watermark.0) else {
                if !has_all {
                    break;
                }
                if !self.passed.is_restoring() {
                    outbox.watermark(watermark);
                }
                return Ok(Progress::DONE);
            };
            self.touch(slot);
            self.passed.remove(slot);
        }
        Ok(Progress::MADE)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        forgotten_without(self.kept.as_ref())
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T, K, F> Checkpointed for DistinctP<T, K, F>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    fn states(&self) -> Vec<StateShape> {
        self.kept.iter().map(|kept| kept.shape(STATE)).collect()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.passed.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let kept = &self.kept;
        self.passed.write_snapshot(writer, |chunk, key, _, passed| {
            write(kept, chunk, key, *passed)
        })
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.passed.commit(epoch)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.passed.abort(epoch))
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let Some(kept) = &self.kept else {
                return Err(RestoredState::unknown(&entry));
            };
            let (key, (), mut rest) = kept.read(&entry)?;
            let passed = rest.time()?;
            self.passed.weigh(&entry);
            let slot = self.passed.restore(key, passed)?;
            if let Some(span) = self.span {
                self.ends.set(slot, passed + span);
            }
            self.spill()?;
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.passed.all_restored();
        Ok(Progress::DONE)
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        let before = *before;
        self.passed = before.passed;
        self.ends = before.ends;
        true
    }

    fn partitioned_restore(&mut self) -> Option<&mut dyn PartitionRestore> {
        Some(self)
    }
}

impl<T, K, F> PartitionRestore for DistinctP<T, K, F>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    fn enable_lazy_restore(&mut self, entries: u64) -> bool {
        self.passed.begin_early(entries, self.kept.is_some())
    }

    fn on_partition_restored(&mut self, partition: PartitionId) -> Result<()> {
        self.passed.partition_restored(partition);
        Ok(())
    }

    fn take_requested_partitions(&mut self, wanted: &mut Vec<PartitionId>) {
        self.passed.take_wanted(wanted);
    }
}

impl<T, K: Key, F> fmt::Debug for DistinctP<T, K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistinctP")
            .field("passed", &self.passed)
            .field("span", &self.span)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, at};
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn the_first_of_each_key_passes() {
        Drive::every_schedule(|drive| {
            let mut distinct = DistinctP::new(Arc::new(|n: &i64| n % 7));
            let seen = drive
                .records((0..50).map(|n| (n, at(n))))
                .run::<i64>(&mut distinct);
            assert_eq!(
                seen.records(),
                (0..7).map(|n| (n, at(n))).collect::<Vec<_>>()
            );
        });
    }

    #[test]
    fn a_record_exactly_a_span_after_the_last_that_passed_passes() {
        for mark in [0, 9, 10] {
            let key = Arc::new(|_: &i64| 0);
            let mut distinct = DistinctP::new(key).within(Duration::from_secs(10));
            let drive = Drive::default()
                .records([(0i64, at(0)), (9, at(9))])
                .watermark(at(mark))
                .records([(10i64, at(10)), (19, at(19)), (20, at(20))]);
            let seen = drive.run::<i64>(&mut distinct);
            assert_eq!(seen.values(), [0, 10, 20]);
        }
    }

    #[test]
    fn keys_behind_the_watermark_are_forgotten() {
        let mut distinct = DistinctP::new(Arc::new(|n: &i64| *n)).within(Duration::from_secs(5));
        let drive = Drive::default()
            .records((0..10_000).map(|n| (n, at(n))))
            .watermark(at(10_000));
        assert_eq!(drive.run::<i64>(&mut distinct).values().len(), 10_000);
        assert_eq!(distinct.keys(), 4, "those after 9,995");
    }

    proptest! {
        #[test]
        fn a_key_passes_once_a_span(
            records in prop::collection::vec((0u8..5, 0i64..4), 0..80),
            span in 1u64..12,
            mark_every in 1usize..10,
        ) {
            let mut distinct = DistinctP::new(Arc::new(|record: &(u8, i64)| record.0)).within(Duration::from_secs(span));
            let mut drive = Drive::with_room(3);
            let (mut now, mut last, mut expected) = (0, HashMap::<u8, i64>::new(), Vec::new());
            for (index, (key, step)) in records.into_iter().enumerate() {
                now += step;
                drive = drive.records([((key, now), at(now))]);
                if last.get(&key).is_none_or(|passed| now >= passed + span as i64) {
                    last.insert(key, now);
                    expected.push((key, now));
                }
                if index % mark_every == 0 {
                    drive = drive.watermark(at(now));
                }
            }
            prop_assert_eq!(drive.run::<(u8, i64)>(&mut distinct).values(), expected);
        }
    }
}
