//! Running aggregates: one result per record.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Error, ErrorCode, Inbox, InstanceContext, Ordinal, Outbox, PartitionId,
    Processor, Progress, RecordGuard, Result, Timestamp, Watermark,
};
use ardea_state::{BufferedRecords, KeyedState, StateCodecs};

use crate::{Feed, FeedVisitor, KeyedFold};

/// The maximum number of keys that expire per call.
const EXPIRED_PER_CALL: usize = 4096;

/// Aggregates the records of each key so far. Emits `(key, result)` for every record, with the
/// record's event time.
///
/// With a time-to-live (TTL), the state of a key is reset when the key has had no record for longer
/// than the TTL, in event time. Its memory is released as the watermark advances. Results do not
/// depend on the time of release as long as no record is late.
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
    keys: KeyedState<F::Key, F::Acc>,
    /// The span of event time without records after which a key has expired.
    expires_after: Option<Duration>,
    /// Buffered records whose partition is not restored yet, by input.
    buffered: BufferedInputs,
}

impl<F: KeyedFold> RollingP<F> {
    /// Creates a running aggregate by `fold`.
    pub fn new(fold: Arc<F>) -> Self {
        let mut keys = KeyedState::default();
        keys.allow_lazy_restore();
        keys.allow_spilling();
        RollingP {
            fold,
            keys,
            expires_after: None,
            buffered: BTreeMap::new(),
        }
    }

    /// Sets the time-to-live: a key without records for longer than `ttl` of event time is reset.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        let expires_after = ttl.saturating_add(Duration::from_micros(1));
        self.expires_after = Some(expires_after);
        self.keys.set_ttl(expires_after);
        self
    }

    /// Sets the serializers of keys and accumulators, so that the state is checkpointed.
    pub fn with_codecs(mut self, codecs: StateCodecs<F::Key, F::Acc>) -> Self {
        self.keys.set_codecs(codecs);
        self
    }

    /// Splits the processor into two parts that can be borrowed separately.
    fn split_parts(&mut self) -> (RollingUpdate<'_, F>, &mut BufferedInputs) {
        let update = RollingUpdate {
            fold: &*self.fold,
            keys: &mut self.keys,
            expires_after: self.expires_after,
        };
        (update, &mut self.buffered)
    }
}

/// Borrowed parts of the processor that update the state of a record's key.
struct RollingUpdate<'a, F: KeyedFold> {
    fold: &'a F,
    keys: &'a mut KeyedState<F::Key, F::Acc>,
    expires_after: Option<Duration>,
}

impl<F: KeyedFold> RollingUpdate<'_, F> {
    /// Adds one record and returns its result.
    #[inline]
    fn take<I>(&mut self, feed: &I, record: &I::Record, time: Timestamp) -> Result<(F::Key, F::Out)>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>,
    {
        let key = feed.key(record);
        let create = || self.fold.create();
        let slot = self.keys.slot(Cow::Borrowed(&*key), create)?;
        let is_expired = self.expires_after.is_some_and(|after| {
            let last = self.keys.last_used(slot);
            last.is_some_and(|last| last + after <= time)
        });
        let Some((_, acc, _)) = self.keys.use_at(slot, time) else {
            return Err(Error::new(ErrorCode::Internal, "a key has no state"));
        };
        if is_expired {
            *acc = self.fold.create();
        }
        feed.accumulate(acc, record);
        Ok((key.into_owned(), self.fold.finish(acc)))
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
    update: RollingUpdate<'a, F>,
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
        let mut update = self.update;
        let mut lane = self.outbox.lane::<(F::Key, F::Out)>(Ordinal::FIRST)?;
        let rows = self.inbox.rows::<I::Record>()?;
        let count = rows.len().min(lane.room());
        let mut guard = RecordGuard::new();
        if update.keys.is_restoring() {
            let aside = buffered_of(self.buffered, self.input)?;
            let is_full = aside.is_full(update.keys.max_buffered());
            let count = if is_full { 0 } else { count };
            for (record, time) in rows.drain_front(count) {
                let partition = PartitionId::of(&*feed.key(&record));
                match update.keys.must_buffer(partition) {
                    true => aside.put(partition, record, time),
                    false => lane.push(update.take(feed, &record, time)?, time),
                }
                guard.advance();
            }
            return Ok(());
        }
        for (record, time) in rows.iter().take(count) {
            lane.push(update.take(feed, record, time)?, time);
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
    update: RollingUpdate<'a, F>,
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
        let mut update = self.update;
        let mut lane = self.outbox.lane::<(F::Key, F::Out)>(Ordinal::FIRST)?;
        let aside = buffered_of::<I::Record>(self.buffered, self.input)?;
        while !lane.is_full() {
            let Some((record, time)) = aside.take(self.partition) else {
                return Ok(true);
            };
            lane.push(update.take(feed, &record, time)?, time);
        }
        Ok(false)
    }
}

impl<F: KeyedFold> Processor for RollingP<F> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.keys.open(context)
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.keys.spill()?;
        let fold = Arc::clone(&self.fold);
        let (update, buffered) = self.split_parts();
        let visited = fold.visit(
            input,
            TakeRolling {
                update,
                buffered,
                input,
                inbox,
                outbox,
            },
        );
        self.keys.report_size();
        visited
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if self.keys.is_restoring() {
            // The watermark is delivered again once all state is restored. No key has to expire
            // before that.
            return Ok(Progress::DONE);
        }
        self.keys.set_watermark(watermark);
        self.keys.spill()?;
        if !self.keys.remove_expired(EXPIRED_PER_CALL)? {
            return Ok(Progress::MADE);
        }
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.keys.unsaved_state()
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
                let (update, buffered) = self.split_parts();
                let taking = ProcessBuffered {
                    update,
                    buffered,
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
        self.keys.into_memory()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.keys)
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
