//! A join of two streams by key and time interval.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, InstanceMetrics, Key, Ordinal, Outbox, Processor,
    Progress, Result, StateCodec, Timestamp, Watermark,
};
use ardea_state::{KeyTable, OperatorState, TimerSet};

use crate::forward::{break_if, take_until};
use crate::join::JoinInterval;
use crate::join::join_buffers::{JoinBounds, JoinState, KeyBuffers, RecordKey, RecordSlot, insert};
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
    state: OperatorState<JoinState<K, L, R>>,
    order: RecordOrder<K>,
    backlog: Backlog<U>,
    watermark: Watermark,
    metrics: Arc<InstanceMetrics>,
}

/// The order of the buffered records, which is not part of the state.
struct RecordOrder<K> {
    keys: KeyTable<K, KeyBuffers>,
    /// Per key, the time at which its first record expires, and the hash of the key. The order does
    /// not depend on slots, which differ after a restore.
    ends: TimerSet<(Timestamp, u64)>,
    /// The number of the next record.
    next: u64,
    /// False until the records of a restored state are in order.
    is_complete: bool,
}

impl<K> Default for RecordOrder<K> {
    fn default() -> Self {
        RecordOrder {
            keys: KeyTable::default(),
            ends: TimerSet::default(),
            next: 0,
            is_complete: false,
        }
    }
}

impl<K: Key> RecordOrder<K> {
    /// Puts the records of a restored state in order. Called before the first record.
    fn complete<L, R>(&mut self, state: &JoinState<K, L, R>, interval: &JoinInterval) {
        if self.is_complete {
            return;
        }
        self.is_complete = true;
        for slot in 0..state.left.slots() {
            if let Some(at) = state.left.key(slot) {
                insert(&mut self.restored(at).left, place_of(at, slot));
            }
        }
        for slot in 0..state.right.slots() {
            if let Some(at) = state.right.key(slot) {
                insert(&mut self.restored(at).right, place_of(at, slot));
            }
        }
        for slot in 0..self.keys.index().slots() as u32 {
            self.reschedule(slot, interval);
        }
    }

    fn restored(&mut self, at: &RecordKey<K>) -> &mut KeyBuffers {
        self.next = self.next.max(at.number.saturating_add(1));
        let key = Cow::Borrowed(&at.key);
        self.keys.get_or_insert(key, KeyBuffers::default).1
    }

    /// Updates the entry of a key in the set of expiry times, and removes a key without records.
    fn reschedule(&mut self, slot: u32, interval: &JoinInterval) {
        let Some(buffers) = self.keys.values_mut().get_mut(slot as usize) else {
            return;
        };
        let (before, end) = (buffers.end, buffers.next_end(interval));
        buffers.end = end;
        if before != end {
            let hash = self.keys.index().key(slot).key_hash();
            if let Some(old) = before {
                self.ends.clear(slot, (old, hash));
            }
            if let Some(new) = end {
                self.ends.set(slot, (new, hash));
            }
        }
        if end.is_none() {
            self.keys.remove(slot);
        }
    }
}

fn place_of<K>(at: &RecordKey<K>, slot: u32) -> RecordSlot {
    RecordSlot {
        time: at.time,
        number: at.number,
        slot,
    }
}

impl<L, R, K, U, LK, RK, J> IntervalJoinP<L, R, K, U, LK, RK, J>
where
    K: Key,
    L: Send + 'static,
    R: Send + 'static,
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
            state: OperatorState::new(JoinState::default()),
            order: RecordOrder::default(),
            backlog: Backlog::default(),
            watermark: Watermark::NONE,
            metrics: Arc::default(),
        }
    }

    /// Sets the serializers of keys and of the records of both sides, so that they are
    /// checkpointed.
    pub fn with_codecs(
        mut self,
        key: Arc<dyn StateCodec<K>>,
        left: Arc<dyn StateCodec<L>>,
        right: Arc<dyn StateCodec<R>>,
    ) -> Self {
        self.state.set_codecs(key, left, right);
        self
    }
}

impl<L, R, K, U, LK, RK, J> IntervalJoinP<L, R, K, U, LK, RK, J>
where
    K: Key,
    L: Send + 'static,
    R: Send + 'static,
    U: Send + 'static,
    J: Fn(&L, Option<&R>) -> Option<U>,
{
    /// Reads records of one side. `key` returns a record's key, `add` pairs the record with the
    /// other side and buffers it.
    fn read<T: Send + 'static>(
        &mut self,
        input: Ordinal,
        inbox: &mut Inbox,
        outbox: &mut Outbox,
        key: impl Fn(&T) -> K,
        add: impl Fn(
            &mut KeyBuffers,
            &mut JoinState<K, L, R>,
            (RecordKey<K>, T),
            JoinBounds<'_>,
            &J,
            &mut Output<'_, U>,
        ) -> Result<()>,
    ) -> Result<()> {
        let (state, order, interval) = (&mut *self.state, &mut self.order, &self.interval);
        order.complete(state, interval);
        let (watermark, join) = (self.watermark, &self.logic.join);
        let bounds = JoinBounds {
            interval,
            watermark,
        };
        let mut output = self.backlog.open(outbox, Ordinal::FIRST)?;
        if output.is_full() {
            self.backlog.wake_if_waiting(outbox);
            return Ok(());
        }
        let position = inbox.position();
        require_times(inbox.rows::<T>()?.times(), input, position)?;
        let (mut late, mut failed) = (0, Ok(()));
        take_until(inbox.rows::<T>()?, |record, time| {
            if time < watermark.0 {
                late += 1;
                return break_if(false);
            }
            let key = key(&record);
            let (slot, buffers) = order
                .keys
                .get_or_insert(Cow::Borrowed(&key), KeyBuffers::default);
            let number = order.next;
            order.next += 1;
            let at = RecordKey { key, time, number };
            failed = add(buffers, state, (at, record), bounds, join, &mut output);
            order.reschedule(slot, interval);
            break_if(output.is_full() || failed.is_err())
        });
        if late > 0 {
            self.metrics.count_late(late);
        }
        self.backlog.wake_if_waiting(outbox);
        failed
    }

    /// Removes records that can match no further record at the watermark. Done when all of them are
    /// removed and unmatched left records are emitted.
    fn expire(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let made = outbox.has_room(Ordinal::FIRST);
        let (state, order, interval) = (&mut *self.state, &mut self.order, &self.interval);
        order.complete(state, interval);
        let watermark = self.watermark;
        let bounds = JoinBounds {
            interval,
            watermark,
        };
        let mut output = self.backlog.open(outbox, Ordinal::FIRST)?;
        for _ in 0..KEYS_PER_CALL {
            let Some((_, slot)) = order.ends.first_due((watermark.0, u64::MAX)) else {
                break;
            };
            let Some(buffers) = order.keys.values_mut().get_mut(slot as usize) else {
                break;
            };
            if !buffers.expire(state, bounds, &self.logic.join, &mut output) {
                break;
            }
            order.reschedule(slot, interval);
        }
        let all_expired = order.ends.first_due((watermark.0, u64::MAX)).is_none();
        self.backlog.wake_if_waiting(outbox);
        Ok(Progress {
            made,
            done: all_expired && self.backlog.is_empty(),
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
        self.state.open(context)
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let logic = Arc::clone(&self.logic);
        if input == Self::LEFT {
            let add = KeyBuffers::add_left;
            self.read(input, inbox, outbox, &logic.left_key, add)
        } else {
            let add = KeyBuffers::add_right;
            self.read(input, inbox, outbox, &logic.right_key, add)
        }
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.watermark = watermark;
        let progress = self.expire(outbox)?;
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
        self.expire(outbox)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.backlog.settle(outbox, Ordinal::FIRST).map(drop)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        let what = "the records that may still be joined, which have no serializer";
        self.state.left.unsaved_state().map(|_| what)
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        self.state.into_memory()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.state)
    }
}

impl<L, R, K: Key, U, LK, RK, J> fmt::Debug for IntervalJoinP<L, R, K, U, LK, RK, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntervalJoinP")
            .field("interval", &self.interval)
            .field("keys", &self.order.keys.len())
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
