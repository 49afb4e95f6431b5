//! A join of two streams by key and time interval.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, InstanceMetrics, Key, Ordinal, Outbox, Processor,
    Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter, StateCodec, StateShape,
    Timestamp, Watermark,
};
use ardea_state::{StateTable, TimerSet};

use crate::forward::{break_if, take_until};
use crate::join::JoinInterval;
use crate::join::join_buffers::{JoinBounds, JoinBuffers, reschedule};
use crate::join::join_changelog::{JoinChangelog, SideChangelog};
use crate::join::join_state_codec::{JoinStateCodec, Restored, Side, check_key};
use crate::time::require_times;
use crate::{Backlog, Output};

/// The maximum number of keys checked for expired records per call.
const KEYS_PER_CALL: usize = 512;

/// The user functions of an [`IntervalJoinP`], shared by all instances.
#[derive(Clone, Debug)]
pub struct IntervalJoinLogic<LK, RK, J> {
    /// Returns the key of a record of the first input: `Fn(&L) -> K`.
    pub left_key: LK,
    /// Returns the key of a record of the second input: `Fn(&R) -> K`.
    pub right_key: RK,
    /// Returns the result of a pair: `Fn(&L, Option<&R>) -> Option<U>`. A pair for which `join`
    /// returns `None` is no match. Called with `None` for an unmatched left record when no match
    /// can arrive any more.
    pub join: J,
}

/// Joins two streams (left is input 0, right is input 1) where keys are equal and times are within
/// a [`JoinInterval`].
///
/// A pair is emitted when its second record arrives, with the later of their event times. An
/// unmatched left record is emitted, if the logic returns a result for it, when the watermark rules
/// out a match. Its event time is then the last time of a possible match.
///
/// A record is buffered until the watermark rules out further matches. A record behind the
/// watermark is late: it is counted and dropped. A record without an event time is an error. Both
/// inputs must have [`Keyed`](ardea_core::Routing::Keyed) routing by the same key. Cost:
/// logarithmic in the records buffered for the key, plus the pairs.
///
/// The buffers can be [checkpointed](IntervalJoinP::with_codecs), record by record. An increment
/// contains the records that were added, removed, or matched for the first time.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::{IntervalJoinP, JoinInterval, inner_interval_join};
///
/// let pairs = |view: &(u32, &'static str), click: &(u32, &'static str)| (view.1, click.1);
/// let logic = inner_interval_join(|view: &(u32, &str)| view.0, |click: &(u32, &str)| click.0, pairs);
/// let within_a_minute = JoinInterval::between(Duration::ZERO, Duration::from_secs(60));
/// let mut join = IntervalJoinP::new(Arc::new(logic), within_a_minute);
///
/// let mut outbox = Outbox::new(1, 16);
/// for (input, record, secs) in [
///     (Ordinal::FIRST, (7u32, "view"), 0),
///     (Ordinal::SECOND, (7, "click"), 30),
///     (Ordinal::SECOND, (7, "late click"), 61),
/// ] {
///     let mut inbox = Inbox::default();
///     inbox.fill(Chunk::new(Rows::from_iter([(record, Timestamp::from_secs(secs))])));
///     join.process(input, &mut inbox, &mut outbox)?;
/// }
/// assert_eq!(outbox.lane::<(&str, &str)>(Ordinal::FIRST)?.rows().values(), [("view", "click")]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct IntervalJoinP<L, R, K, U, LK, RK, J> {
    logic: Arc<IntervalJoinLogic<LK, RK, J>>,
    interval: JoinInterval,
    keys: StateTable<K, JoinBuffers<L, R>>,
    /// Per key, the time at which its first record expires.
    ends: TimerSet<Timestamp>,
    backlog: Backlog<U>,
    watermark: Watermark,
    metrics: Arc<InstanceMetrics>,
    /// The serializers of both sides. `None` if the state is not checkpointed.
    kept: Option<JoinStateCodec<L, R>>,
    /// The changelog for snapshots. `None` if no snapshots are taken.
    changelog: Option<Box<JoinChangelog<L, R>>>,
    /// The latest snapshot generation among the restored records.
    restored: u32,
}

impl<L, R, K, U, LK, RK, J> IntervalJoinP<L, R, K, U, LK, RK, J>
where
    K: Key,
    LK: Fn(&L) -> K,
    RK: Fn(&R) -> K,
    J: Fn(&L, Option<&R>) -> Option<U>,
{
    /// The input of the left stream.
    pub const LEFT: Ordinal = Ordinal::FIRST;
    /// The input of the right stream.
    pub const RIGHT: Ordinal = Ordinal::SECOND;

    /// Creates a join with `logic`, which instances share.
    pub fn new(logic: Arc<IntervalJoinLogic<LK, RK, J>>, interval: JoinInterval) -> Self {
        IntervalJoinP {
            logic,
            interval,
            keys: StateTable::default(),
            ends: TimerSet::default(),
            backlog: Backlog::default(),
            watermark: Watermark::NONE,
            metrics: Arc::default(),
            kept: None,
            changelog: None,
            restored: 0,
        }
    }
}

impl<L, R, K, U, LK, RK, J> IntervalJoinP<L, R, K, U, LK, RK, J> {
    /// Sets the serializers of the records of both sides, so that they are checkpointed. Keys are
    /// not written: a restore computes them from the records.
    pub fn with_codecs(
        mut self,
        left: Arc<dyn StateCodec<L>>,
        right: Arc<dyn StateCodec<R>>,
    ) -> Self {
        self.kept = Some(JoinStateCodec { left, right });
        self
    }
}

impl<L, R, K, U, LK, RK, J> IntervalJoinP<L, R, K, U, LK, RK, J>
where
    K: Key,
    U: Send + 'static,
    J: Fn(&L, Option<&R>) -> Option<U>,
{
    /// Reads records of one side. `key` returns a record's key, `meet` pairs the record with the
    /// other side.
    fn read<T: Send + 'static>(
        &mut self,
        input: Ordinal,
        inbox: &mut Inbox,
        outbox: &mut Outbox,
        key: impl Fn(&T) -> K,
        meet: impl Fn(
            &mut JoinBuffers<L, R>,
            (T, Timestamp),
            JoinBounds<'_>,
            &J,
            &mut SideChangelog<'_, K, L, R>,
            &mut Output<'_, U>,
        ),
    ) -> Result<()> {
        let IntervalJoinP {
            logic,
            interval,
            keys,
            ends,
            backlog,
            watermark,
            metrics,
            changelog: journal,
            ..
        } = self;
        let terms = JoinBounds {
            interval,
            watermark: *watermark,
        };
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        if output.is_full() {
            backlog.wake_if_waiting(outbox);
            return Ok(());
        }
        let position = inbox.position();
        require_times(inbox.rows::<T>()?.times(), input, position)?;
        let mut late = 0;
        take_until(inbox.rows::<T>()?, |record, time| {
            if time < watermark.0 {
                late += 1;
                return break_if(false);
            }
            let slot = keys.slot_or_insert(Cow::Owned(key(&record)), JoinBuffers::default);
            if let Some((key, sides)) = keys.get_mut(slot) {
                let mut book = SideChangelog::open(journal.as_deref_mut(), (key, slot));
                meet(
                    sides,
                    (record, time),
                    terms,
                    &logic.join,
                    &mut book,
                    &mut output,
                );
                reschedule(slot, sides, interval, ends);
                if sides.end.is_none() {
                    keys.remove(slot);
                }
            }
            break_if(output.is_full())
        });
        if late > 0 {
            metrics.count_late(late);
        }
        backlog.wake_if_waiting(outbox);
        Ok(())
    }

    /// Restores a record into the buffers of its key.
    fn restore_record(&mut self, canonical: &[u8], waiting: Restored<L, R>) -> Result<()>
    where
        LK: Fn(&L) -> K,
        RK: Fn(&R) -> K,
    {
        let (key, stamp) = match &waiting {
            Side::Left(waiting) => ((self.logic.left_key)(&waiting.record), waiting.stamp),
            Side::Right(waiting) => ((self.logic.right_key)(&waiting.record), waiting.stamp),
        };
        check_key(&key, canonical)?;
        self.restored = self.restored.max(stamp.generation);
        let slot = self
            .keys
            .slot_or_insert(Cow::Owned(key), JoinBuffers::default);
        if let Some((_, sides)) = self.keys.get_mut(slot) {
            sides.put_back(waiting);
            reschedule(slot, sides, &self.interval, &mut self.ends);
        }
        Ok(())
    }

    /// Removes records that can match no further record at the watermark. Done when all of them are
    /// removed and unmatched left records are emitted.
    fn forget(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let made = outbox.has_room(Ordinal::FIRST);
        let IntervalJoinP {
            logic,
            interval,
            keys,
            ends,
            backlog,
            watermark,
            changelog: journal,
            ..
        } = self;
        let terms = JoinBounds {
            interval,
            watermark: *watermark,
        };
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        for _ in 0..KEYS_PER_CALL {
            let Some((_, slot)) = ends.first_due(watermark.0) else {
                break;
            };
            let Some((key, sides)) = keys.get_mut(slot) else {
                ends.forget(slot);
                continue;
            };
            let mut book = SideChangelog::open(journal.as_deref_mut(), (key, slot));
            if !sides.forget(terms, &logic.join, &mut book, &mut output) {
                break;
            }
            reschedule(slot, sides, interval, ends);
            if sides.end.is_none() {
                keys.remove(slot);
            }
        }
        let all_forgotten = ends.first_due(watermark.0).is_none();
        backlog.wake_if_waiting(outbox);
        Ok(Progress {
            made,
            done: all_forgotten && backlog.is_empty(),
        })
    }
}

impl<L, R, K, U, LK, RK, J> Processor for IntervalJoinP<L, R, K, U, LK, RK, J>
where
    L: Send + 'static,
    R: Send + 'static,
    K: Key,
    U: Send + 'static,
    LK: Fn(&L) -> K + Send + Sync + 'static,
    RK: Fn(&R) -> K + Send + Sync + 'static,
    J: Fn(&L, Option<&R>) -> Option<U> + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.metrics = Arc::clone(&context.metrics);
        if let Some(kept) = self
            .kept
            .as_ref()
            .filter(|_| context.guarantee.keeps_state() && self.changelog.is_none())
        {
            self.changelog = Some(Box::new(JoinChangelog::new(kept.clone())));
        }
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let logic = Arc::clone(&self.logic);
        if input == Self::LEFT {
            self.read(
                input,
                inbox,
                outbox,
                &logic.left_key,
                |sides, record, terms, join, book, output| {
                    sides.left(record, terms, join, book, output);
                },
            )
        } else {
            self.read(
                input,
                inbox,
                outbox,
                &logic.right_key,
                |sides, record, terms, join, book, output| {
                    sides.right(record, terms, join, book, output);
                },
            )
        }
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.watermark = watermark;
        let progress = self.forget(outbox)?;
        if progress.done {
            outbox.watermark(watermark);
        }
        Ok(progress)
    }

    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.backlog.settle(outbox, Ordinal::FIRST)
    }

    fn on_edge_done(&mut self, _: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        self.backlog.settle(outbox, Ordinal::FIRST)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.watermark = Watermark::END;
        self.forget(outbox)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.backlog.settle(outbox, Ordinal::FIRST).map(drop)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        match self.kept {
            Some(_) => None,
            None => Some("the records that may still be joined, which have no serializer"),
        }
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<L, R, K, U, LK, RK, J> Checkpointed for IntervalJoinP<L, R, K, U, LK, RK, J>
where
    L: Send + 'static,
    R: Send + 'static,
    K: Key,
    U: Send + 'static,
    LK: Fn(&L) -> K + Send + Sync + 'static,
    RK: Fn(&R) -> K + Send + Sync + 'static,
    J: Fn(&L, Option<&R>) -> Option<U> + Send + Sync + 'static,
{
    fn states(&mut self) -> Vec<StateShape> {
        self.kept.iter().flat_map(JoinStateCodec::shapes).collect()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        match &mut self.changelog {
            Some(journal) => journal.take_snapshot(snapshot, &self.keys),
            None => Ok(()),
        }
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        match &mut self.changelog {
            Some(journal) => journal.write_snapshot(&mut self.keys, writer),
            None => Ok(Progress::DONE),
        }
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(journal) = &mut self.changelog {
            journal.commit(epoch);
        }
        Ok(Progress::DONE)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        if let Some(journal) = &mut self.changelog {
            journal.abort(epoch);
        }
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let Some(kept) = &self.kept else {
                return Err(RestoredState::unknown(&entry));
            };
            let (canonical, waiting) = kept.read(&entry)?;
            self.restore_record(canonical, waiting)?;
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if let Some(journal) = &mut self.changelog {
            journal.resume_after(self.restored);
        }
        Ok(Progress::DONE)
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        let before = *before;
        self.keys = before.keys;
        self.ends = before.ends;
        self.changelog = before.changelog;
        true
    }
}

impl<L, R, K: Key, U, LK, RK, J> fmt::Debug for IntervalJoinP<L, R, K, U, LK, RK, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntervalJoinP")
            .field("interval", &self.interval)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// Emits `combine(left, right)` for each pair.
pub fn inner_interval_join<L, R, U, LK, RK, F>(
    left_key: LK,
    right_key: RK,
    combine: F,
) -> IntervalJoinLogic<LK, RK, impl Fn(&L, Option<&R>) -> Option<U> + Send + Sync>
where
    F: Fn(&L, &R) -> U + Send + Sync,
{
    let join = move |left: &L, right: Option<&R>| right.map(|right| combine(left, right));
    IntervalJoinLogic {
        left_key,
        right_key,
        join,
    }
}

/// Emits `combine(left, Some(right))` for each pair, and `combine(left, None)` for each unmatched
/// left record.
pub fn outer_interval_join<L, R, U, LK, RK, F>(
    left_key: LK,
    right_key: RK,
    combine: F,
) -> IntervalJoinLogic<LK, RK, impl Fn(&L, Option<&R>) -> Option<U> + Send + Sync>
where
    F: Fn(&L, Option<&R>) -> U + Send + Sync,
{
    let join = move |left: &L, right: Option<&R>| Some(combine(left, right));
    IntervalJoinLogic {
        left_key,
        right_key,
        join,
    }
}

#[cfg(test)]
#[path = "interval_join_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "interval_join_snapshot_tests.rs"]
mod snapshot_tests;
