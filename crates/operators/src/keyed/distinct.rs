//! Deduplication by key.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Inbox, InstanceContext, Key, Ordinal, Outbox, Processor, Progress, RecordGuard,
    Result, Timestamp, Watermark,
};
use ardea_state::{KeyedState, StateCodecs};

use crate::forward::{pass_front, passable, remove_at};

/// The maximum number of keys that expire per call.
const EXPIRED_PER_CALL: usize = 4096;

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
    /// The keys of forwarded records. A key is used when a record of it is forwarded.
    passed: KeyedState<K, ()>,
    /// Batch indexes of the duplicates. Empty between calls.
    repeated: Vec<usize>,
    records: PhantomData<fn(T)>,
}

impl<T, K, F> DistinctP<T, K, F>
where
    K: Key,
    F: Fn(&T) -> K,
{
    /// Creates an operator that deduplicates by `key`, which instances share.
    pub fn new(key: Arc<F>) -> Self {
        let mut passed = KeyedState::default();
        passed.allow_lazy_restore();
        passed.allow_spilling();
        DistinctP {
            key,
            span: None,
            passed,
            repeated: Vec::new(),
            records: PhantomData,
        }
    }

    /// Forwards a record of a key again if at least `span` of event time has passed since the last
    /// forwarded one.
    pub fn within(mut self, span: Duration) -> Self {
        self.span = Some(span);
        self.passed.set_ttl(span);
        self
    }

    /// Sets the serializer of keys, so that the state is checkpointed.
    pub fn with_codecs(mut self, codecs: StateCodecs<K, ()>) -> Self {
        self.passed.set_codecs(codecs);
        self
    }

    /// Returns the number of retained keys.
    pub fn keys(&self) -> usize {
        self.passed.len()
    }

    /// Returns true if a record of `key` at `time` is not a duplicate, and stores the time. A late
    /// record, or one without event time, counts as of the current watermark.
    #[inline]
    fn passes(&mut self, key: K, time: Timestamp) -> Result<bool> {
        let mut is_new = false;
        let slot = self.passed.slot(Cow::Owned(key), || is_new = true)?;
        let Some(span) = self.span else {
            return Ok(is_new);
        };
        let time = time.max(self.passed.watermark().0);
        let last = self.passed.last_used(slot);
        let passes = last.is_none_or(|last| time >= last + span);
        if passes {
            self.passed.use_at(slot, time);
        }
        Ok(passes)
    }
}

impl<T, K, F> Processor for DistinctP<T, K, F>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.passed.open(context)
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.passed.spill()?;
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
        self.passed.report_size();
        let removed = remove_at::<T>(inbox, &mut self.repeated)?;
        pass_front::<T>(inbox, outbox, Ordinal::FIRST, count - removed)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.passed.set_watermark(watermark);
        self.passed.spill()?;
        if !self.passed.remove_expired(EXPIRED_PER_CALL)? {
            return Ok(Progress::MADE);
        }
        if !self.passed.is_restoring() {
            outbox.watermark(watermark);
        }
        Ok(Progress::DONE)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.passed.unsaved_state()
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        self.passed.into_memory()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.passed)
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
