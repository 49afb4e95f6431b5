//! User code with state and timers per key.

use std::any::Any;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Clock, Epoch, Inbox, InstanceContext, InstanceMetrics, Key, Ordinal, Outbox,
    PartitionId, PartitionRestore, Processor, Progress, RestoredState, Result, SnapshotRequest,
    SnapshotWriter, StateShape, Timestamp, Waker, Watermark,
};

use crate::Backlog;
use crate::forward::{break_if, take_until};
use crate::keyed::buffered_records::BufferedRecords;
use crate::keyed::context::Timers;
use crate::keyed::key_processor::{DueEvent, KeyProcessor};
use crate::keyed::timer_codec::{TimerDecoder, freeze, write};
use crate::keyed::{
    DueKind, KeyedContext, KeyedLogic, KeyedStates, STATE, StateCodecs, TimerKind,
    forgotten_without,
};

/// The maximum number of timers fired per call, which keeps the call short.
const TIMERS_PER_CALL: usize = 512;

/// Runs user code with a state per key, which may emit any number of records and set timers.
///
/// * **Event timers** fire in order of time when the watermark reaches them, before the watermark
///   is forwarded. The remaining event timers fire at the end of the input.
/// * **Processing timers** fire when the clock has reached them, until the input ends.
/// * **Time-to-live.** With [`ttl`](StatefulMapP::ttl), a key that no record and no timer has used
///   for that span of event time is removed with its state and timers, as the watermark advances.
///
/// Records must have [`Keyed`](ardea_core::Routing::Keyed) routing by the same key. Cost: one table
/// lookup per record; a timer is logarithmic in the number of timers.
///
/// This example counts the records of each key and emits the count a minute after the first:
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp, Watermark};
/// use ardea_operators::{KeyedContext, KeyedLogic, StatefulMapP};
///
/// type Out<'a, 'o> = KeyedContext<'a, 'o, (String, u32)>;
/// let logic = KeyedLogic {
///     key: |word: &&str| word.to_string(),
///     create: || 0u32,
///     on_record: |count: &mut u32, _: &String, _: &str, time: Timestamp, out: &mut Out| {
///         if *count == 0 {
///             out.set_event_timer(time + Duration::from_secs(60));
///         }
///         *count += 1;
///     },
///     on_timer: |count: &mut u32, word: &String, _: Timestamp, out: &mut Out| {
///         out.emit((word.clone(), *count));
///         out.clear_state();
///     },
/// };
/// let mut counts = StatefulMapP::new(Arc::new(logic));
///
/// let at = Timestamp::from_secs;
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("be", at(0)), ("to", at(5)), ("be", at(9))])));
/// let mut outbox = Outbox::new(1, 16);
/// counts.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// let progress = counts.on_watermark(Watermark(at(62)), &mut outbox)?;
/// assert!(progress.done);
///
/// let mut chunk = outbox.take_chunk(0, Chunk::default).unwrap();
/// assert_eq!(chunk.rows::<(String, u32)>()?.values(), [("be".to_string(), 2)]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct StatefulMapP<T, K, S, U, KF, C, R, X> {
    logic: Arc<KeyedLogic<KF, C, R, X>>,
    ttl: Option<Duration>,
    states: KeyedStates<K, TimedState<S>>,
    timers: Timers,
    /// The serializers of keys and states. `None` if the state is not checkpointed.
    kept: Option<StateCodecs<K, S>>,
    backlog: Backlog<U>,
    watermark: Watermark,
    clock: Clock,
    waker: Waker,
    metrics: Arc<InstanceMetrics>,
    /// Buffered records whose partition is not restored yet.
    buffered: BufferedRecords<T>,
}

/// The state of a key, and the event time of its last use.
pub(super) struct TimedState<S> {
    pub(super) state: S,
    pub(super) touched: Timestamp,
}

impl<T, K, S, U, KF, C, R, X> StatefulMapP<T, K, S, U, KF, C, R, X>
where
    K: Key,
    KF: Fn(&T) -> K,
    C: Fn() -> S,
    R: Fn(&mut S, &K, T, Timestamp, &mut KeyedContext<'_, '_, U>),
    X: Fn(&mut S, &K, Timestamp, &mut KeyedContext<'_, '_, U>),
{
    /// Creates an operator with `logic`, which instances share.
    pub fn new(logic: Arc<KeyedLogic<KF, C, R, X>>) -> Self {
        StatefulMapP {
            logic,
            ttl: None,
            states: KeyedStates::default(),
            timers: Timers::default(),
            kept: None,
            backlog: Backlog::default(),
            watermark: Watermark::NONE,
            clock: Clock::system(),
            waker: Waker::none(),
            metrics: Arc::default(),
            buffered: BufferedRecords::default(),
        }
    }
}

impl<T, K: Key, S, U, KF, C, R, X> StatefulMapP<T, K, S, U, KF, C, R, X> {
    /// Sets the time-to-live: a key that no record and no timer has used for `ttl` of event time is
    /// removed.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the serializers of keys and states, so that states and timers are checkpointed.
    pub fn with_codecs(mut self, kept: StateCodecs<K, S>) -> Self {
        self.kept = Some(kept);
        self
    }

    /// Returns the number of keys with a state.
    pub fn keys(&self) -> usize {
        self.states.len()
    }
}

impl<T, K, S, U, KF, C, R, X> StatefulMapP<T, K, S, U, KF, C, R, X>
where
    K: Key,
    U: Send + 'static,
    X: Fn(&mut S, &K, Timestamp, &mut KeyedContext<'_, '_, U>),
{
    /// Splits the processor into parts that can be borrowed separately.
    #[expect(
        clippy::type_complexity,
        reason = "the parts have the parameters of the whole"
    )]
    fn key_processor(
        &mut self,
    ) -> (
        KeyProcessor<'_, K, S, KF, C, R, X>,
        &mut Backlog<U>,
        &mut BufferedRecords<T>,
    ) {
        let desk = KeyProcessor {
            logic: &self.logic,
            states: &mut self.states,
            timers: &mut self.timers,
            kept: &self.kept,
            clock: &self.clock,
            ttl: self.ttl,
            watermark: self.watermark,
        };
        (desk, &mut self.backlog, &mut self.buffered)
    }

    /// Fires the timers that the watermark has reached. Done when all have fired and their outputs
    /// have found room.
    fn fire_event_timers(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.spill()?;
        let made = outbox.has_room(Ordinal::FIRST);
        let (mut desk, backlog, _) = self.key_processor();
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        let mut left = TIMERS_PER_CALL;
        let mut due = desk.next_event_due()?;
        while left > 0 && !output.is_full() {
            match due {
                None => break,
                Some(DueEvent::Expiry(end, slot)) => desk.expire(end, slot),
                Some(DueEvent::Timer(time, slot, kind)) => {
                    desk.touch(slot);
                    desk.timers.event.clear(slot, time);
                    desk.timer(time, slot, kind, &mut output);
                }
            }
            left -= 1;
            due = desk.next_event_due()?;
        }
        let all_fired = due.is_none();
        self.ask_to_be_woken(outbox);
        Ok(Progress {
            made,
            done: all_fired && self.backlog.is_empty(),
        })
    }

    /// Fires the due processing timers while there is room.
    fn fire_processing_timers(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.spill()?;
        let (mut desk, backlog, _) = self.key_processor();
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        let now = desk.clock.now();
        if desk.states.first_due(DueKind::Processing).is_some() {
            desk.load_due(DueKind::Processing, nanos(now))?;
        }
        let wall = desk.clock.wall();
        for _ in 0..TIMERS_PER_CALL {
            if output.is_full() {
                break;
            }
            let Some((deadline, slot)) = desk.timers.processing.first_due(now) else {
                break;
            };
            desk.touch(slot);
            desk.timers.processing.clear(slot, deadline);
            desk.timer(
                wall - (now - deadline),
                slot,
                TimerKind::Processing,
                &mut output,
            );
        }
        self.ask_to_be_woken(outbox);
        Ok(())
    }

    fn ask_to_be_woken(&self, outbox: &mut Outbox) {
        self.backlog.wake_if_waiting(outbox);
        if let Some((deadline, _)) = self.timers.processing.first() {
            outbox.wake_at(deadline);
        }
        if let Some(deadline) = self.states.first_due(DueKind::Processing) {
            outbox.wake_at(Duration::from_nanos(deadline.unsigned_abs()));
        }
    }

    /// Requests a wake-up if there are processing timers. There is no outbox during a restore to
    /// schedule the wake-up.
    fn wake_for_timers(&self) {
        let on_disk = self.states.first_due(DueKind::Processing);
        if self.timers.processing.first().is_some() || on_disk.is_some() {
            self.waker.wake();
        }
    }

    /// Spills keys to disk if memory is short.
    fn spill(&mut self) -> Result<()> {
        let (kept, timers) = (&self.kept, &mut self.timers);
        let (clock, ttl) = (&self.clock, self.ttl);
        self.states.spill(|chunk, key, slot, state| {
            freeze(kept, (&mut *timers, clock, ttl), chunk, (key, slot), state)
        })
    }
}

/// Converts a time of the monotonic clock for storage on disk.
pub(super) fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

impl<T, K, S, U, KF, C, R, X> Processor for StatefulMapP<T, K, S, U, KF, C, R, X>
where
    T: Send + 'static,
    K: Key,
    S: Send + 'static,
    U: Send + 'static,
    KF: Fn(&T) -> K + Send + Sync + 'static,
    C: Fn() -> S + Send + Sync + 'static,
    R: Fn(&mut S, &K, T, Timestamp, &mut KeyedContext<'_, '_, U>) + Send + Sync + 'static,
    X: Fn(&mut S, &K, Timestamp, &mut KeyedContext<'_, '_, U>) + Send + Sync + 'static,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        self.waker = context.waker.clone();
        self.metrics = Arc::clone(&context.metrics);
        self.states.attach(context, self.kept.is_some())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.spill()?;
        let (is_away, most) = (self.states.is_restoring(), self.states.max_buffered());
        // Due timers of newly restored keys fire before the records of these keys are processed.
        if is_away && (!self.fire_event_timers(outbox)?.done || self.buffered.is_full(most)) {
            if outbox.has_room(Ordinal::FIRST) && !self.buffered.is_full(most) {
                // Keys may be removed without output. No other event would continue with the
                // remaining ones.
                outbox.wake_at(self.clock.now());
            }
            return Ok(());
        }
        let (mut desk, backlog, aside) = self.key_processor();
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        let mut failed = Ok(());
        if !output.is_full() {
            take_until(inbox.rows::<T>()?, |record, time| {
                if is_away {
                    let partition = PartitionId::of(&(desk.logic.key)(&record));
                    if desk.states.must_buffer(partition) {
                        aside.put(partition, record, time);
                        return break_if(aside.is_full(most));
                    }
                }
                if let Err(error) = desk.record(record, time, &mut output) {
                    failed = Err(error);
                    return ControlFlow::Break(());
                }
                break_if(output.is_full())
            });
        }
        self.ask_to_be_woken(outbox);
        let (kept, with) = (&self.kept, (&self.timers, &self.clock));
        self.states
            .account(&self.metrics, |chunk, key, slot, state| {
                write(kept, with, chunk, (key, slot), state)
            });
        failed
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if self.buffered.holds(watermark) {
            return Ok(Progress::DONE);
        }
        self.watermark = watermark;
        let progress = self.fire_event_timers(outbox)?;
        if progress.done && !self.states.is_restoring() {
            outbox.watermark(watermark);
        }
        Ok(progress)
    }

    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let progress = self.backlog.settle(outbox, Ordinal::FIRST)?;
        self.ask_to_be_woken(outbox);
        Ok(progress)
    }

    fn on_edge_done(&mut self, _: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        self.backlog.settle(outbox, Ordinal::FIRST)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.watermark = Watermark::END;
        self.fire_event_timers(outbox)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.fire_processing_timers(outbox)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        forgotten_without(self.kept.as_ref())
    }

    fn catch_up(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        // As before other records of restored keys.
        let fired = self.fire_event_timers(outbox)?;
        if !fired.done {
            return Ok(fired);
        }
        let (mut desk, backlog, aside) = self.key_processor();
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        let mut made = fired.made;
        while let Some(partition) = desk
            .states
            .next_buffered_partition()
            .filter(|_| !output.is_full())
        {
            made = true;
            match aside.take(partition) {
                Some((record, time)) => desk.record(record, time, &mut output)?,
                None => desk.states.finish_buffered_partition(),
            }
        }
        let is_done = desk.states.next_buffered_partition().is_none();
        self.ask_to_be_woken(outbox);
        let Some(watermark) = self.buffered.take_watermark() else {
            return Ok(Progress {
                made,
                done: is_done && self.backlog.is_empty(),
            });
        };
        self.watermark = watermark;
        self.fire_event_timers(outbox)
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<T, K, S, U, KF, C, R, X> Checkpointed for StatefulMapP<T, K, S, U, KF, C, R, X>
where
    T: Send + 'static,
    K: Key,
    S: Send + 'static,
    U: Send + 'static,
    KF: Fn(&T) -> K + Send + Sync + 'static,
    C: Fn() -> S + Send + Sync + 'static,
    R: Fn(&mut S, &K, T, Timestamp, &mut KeyedContext<'_, '_, U>) + Send + Sync + 'static,
    X: Fn(&mut S, &K, Timestamp, &mut KeyedContext<'_, '_, U>) + Send + Sync + 'static,
{
    fn states(&self) -> Vec<StateShape> {
        self.kept.iter().map(|kept| kept.shape(STATE)).collect()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.states.take_snapshot(snapshot)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let (kept, with) = (&self.kept, (&self.timers, &self.clock));
        self.states
            .write_snapshot(writer, |chunk, key, slot, state| {
                write(kept, with, chunk, (key, slot), state)
            })
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.states.commit(epoch)
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.states.abort(epoch))
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let mut come_back =
                TimerDecoder::new(&self.kept, &mut self.timers, &self.clock, self.ttl);
            let (key, state, times) = come_back.read(&entry)?;
            self.states.weigh(&entry);
            let slot = self.states.restore(key, state)?;
            come_back.set(slot, times);
            self.spill()?;
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.states.all_restored();
        self.wake_for_timers();
        Ok(Progress::DONE)
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        let before = *before;
        self.states = before.states;
        self.timers = before.timers;
        true
    }

    fn partitioned_restore(&mut self) -> Option<&mut dyn PartitionRestore> {
        Some(self)
    }
}

impl<T, K, S, U, KF, C, R, X> PartitionRestore for StatefulMapP<T, K, S, U, KF, C, R, X>
where
    T: Send + 'static,
    K: Key,
    S: Send + 'static,
    U: Send + 'static,
    KF: Fn(&T) -> K + Send + Sync + 'static,
    C: Fn() -> S + Send + Sync + 'static,
    R: Fn(&mut S, &K, T, Timestamp, &mut KeyedContext<'_, '_, U>) + Send + Sync + 'static,
    X: Fn(&mut S, &K, Timestamp, &mut KeyedContext<'_, '_, U>) + Send + Sync + 'static,
{
    fn enable_lazy_restore(&mut self, entries: u64) -> bool {
        self.states.begin_early(entries, self.kept.is_some())
    }

    fn on_partition_restored(&mut self, partition: PartitionId) -> Result<()> {
        self.states.partition_restored(partition);
        self.wake_for_timers();
        Ok(())
    }

    fn take_requested_partitions(&mut self, wanted: &mut Vec<PartitionId>) {
        self.states.take_wanted(wanted);
    }
}

impl<T, K: Key, S, U, KF, C, R, X> fmt::Debug for StatefulMapP<T, K, S, U, KF, C, R, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatefulMapP")
            .field("states", &self.states)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "stateful_map_tests.rs"]
mod tests;
