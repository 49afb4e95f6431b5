//! Each key once.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Cut, CutWriter, Epoch, Inbox, InstanceContext, InstanceMetrics, Key, Ordinal, Outbox,
    PartitionId, Processor, Progress, RecordGuard, RestoredEntry, RestoredState, Result,
    StateChunk, StateShape, Timestamp, Watermark,
};

use crate::keyed::{Due, Dues, KeptAs, KeyedStates, STATE, TimerSet, put_time, unless_kept};
use crate::passing::{pass_front, passable, remove_at};

/// How many keys a call forgets at most.
const FORGOTTEN_PER_CALL: usize = 4096;
/// How many a call brings back from disk for that.
const FROM_DISK_PER_CALL: usize = 64;

/// Passes on the first record of each key and swallows the others.
///
/// All keys are remembered, unless [`within`](DistinctP::within) sets a span of event time: then a record passes if it is at least
/// that much later than the last of its key that passed, and a key is forgotten when the watermark has come that far. On an
/// endless stream with ever new keys only that bounds the memory.
///
/// Records must come by [`Keyed`](ardea_core::Routing::Keyed) routing on the same key. For whole records let the key
/// function clone the record.
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
    /// When the record that passed last for a key was, in event time.
    passed: KeyedStates<K, Timestamp>,
    ends: TimerSet<Timestamp>,
    watermark: Watermark,
    /// How its keys are written where they have to survive it.
    kept: Option<KeptAs<K, ()>>,
    /// Indexes in the batch of the records that don't pass; empty between calls.
    repeated: Vec<usize>,
    metrics: Arc<InstanceMetrics>,
    records: PhantomData<fn(T)>,
}

impl<T, K, F> DistinctP<T, K, F>
where
    K: Key,
    F: Fn(&T) -> K,
{
    /// By `key`, which all instances share.
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

    /// Lets a key pass again when at least `span` of event time has gone by since it passed.
    pub fn within(mut self, span: Duration) -> Self {
        self.span = Some(span);
        self
    }

    /// Says how its keys are written, so that they survive it.
    pub fn kept_as(mut self, kept: KeptAs<K, ()>) -> Self {
        self.kept = Some(kept);
        self
    }

    /// How many keys are remembered.
    pub fn keys(&self) -> usize {
        self.passed.len()
    }

    /// Whether a record of `key` passes; if so, remembers it.
    #[inline]
    fn passes(&mut self, key: K, time: Timestamp) -> Result<bool> {
        // A record without event time, or a late one, counts as of now.
        let time = time.max(self.watermark.0);
        let mut is_new = false;
        let create = || {
            is_new = true;
            time
        };
        let (kept, ends, span) = (&self.kept, &mut self.ends, self.span);
        let thaw = |slot: u32, entry: &RestoredEntry<'_>| thaw(kept, ends, span, slot, entry);
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

    /// What is remembered of a key is about to change.
    fn touch(&mut self, slot: u32) {
        let kept = &self.kept;
        self.passed
            .touch(slot, |chunk, key, passed| write(kept, chunk, key, *passed));
    }

    /// Moves keys to disk if memory is short.
    fn relieve(&mut self) -> Result<()> {
        let (kept, ends, span) = (&self.kept, &mut self.ends, self.span);
        self.passed.relieve(|chunk, key, slot, passed| {
            write(kept, chunk, key, *passed)?;
            ends.forget(slot);
            let end = span.map(|span| (*passed + span).as_micros());
            Ok(Dues::of(None, None, end))
        })
    }

    /// Brings back keys on disk that the watermark lets forget, some at a time; whether there are no more.
    fn bring_back(&mut self, watermark: Watermark) -> Result<bool> {
        let (kept, ends, span) = (&self.kept, &mut self.ends, self.span);
        let over = self.passed.load_due(
            (Due::Expiry, watermark.0.as_micros(), FROM_DISK_PER_CALL),
            |entry| {
                let kept = kept.as_ref().ok_or_else(|| RestoredState::unknown(entry))?;
                kept.read_as(STATE, entry).map(|(key, _)| key)
            },
            |slot, entry| thaw(kept, ends, span, slot, entry),
        )?;
        Ok(over.len() < FROM_DISK_PER_CALL)
    }
}

/// What an entry says of the key that comes to a slot.
fn thaw<K: Key>(
    kept: &Option<KeptAs<K, ()>>,
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

/// Appends the entry of a key: when a record of it passed last.
fn write<K: Key>(
    kept: &Option<KeptAs<K, ()>>,
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
        self.relieve()?;
        let mut count = passable::<T>(inbox, outbox, Ordinal::FIRST)?;
        let key = Arc::clone(&self.key);
        if self.passed.is_away() {
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
        self.relieve()?;
        // At the end of the input what is on disk goes with the disk.
        let has_all = watermark == Watermark::END || self.bring_back(watermark)?;
        for _ in 0..FORGOTTEN_PER_CALL {
            let Some((_, slot)) = self.ends.pop_due(watermark.0) else {
                if !has_all {
                    break;
                }
                if !self.passed.is_away() {
                    outbox.watermark(watermark);
                }
                return Ok(Progress::DONE);
            };
            self.touch(slot);
            self.passed.remove(slot);
        }
        Ok(Progress::MADE)
    }

    fn forgets(&self) -> Option<&'static str> {
        unless_kept(self.kept.as_ref())
    }

    fn states(&self) -> Vec<StateShape> {
        self.kept.iter().map(|kept| kept.shape(STATE)).collect()
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.passed.take_cut(cut)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let kept = &self.kept;
        self.passed.write_cut(writer, |chunk, key, _, passed| {
            write(kept, chunk, key, *passed)
        })
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.passed.commit(epoch)
    }

    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.passed.give_up(epoch))
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
            self.relieve()?;
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.passed.are_back();
        Ok(Progress::DONE)
    }

    fn begins_early(&mut self, entries: u64) -> bool {
        self.passed.begin_early(entries, self.kept.is_some())
    }

    fn on_partition_restored(&mut self, partition: PartitionId) -> Result<()> {
        self.passed.come_back(partition);
        Ok(())
    }

    fn take_wanted(&mut self, wanted: &mut Vec<PartitionId>) {
        self.passed.take_wanted(wanted);
    }

    fn hand_over(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn take_over(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        let before = *before;
        self.passed = before.passed;
        self.ends = before.ends;
        true
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
    use crate::drive::{Drive, at};
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
