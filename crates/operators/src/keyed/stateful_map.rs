//! User code with state and timers per key.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Clock, Epoch, Inbox, InstanceContext, Key, Ordinal, Outbox, PartitionId,
    Processor, Progress, Result, Timestamp, Watermark,
};
use ardea_state::{BufferedRecords, KeyedState, StateCodecs, TimerKind};

use crate::forward::{break_if, take_until};
use crate::keyed::{KeyedContext, KeyedLogic};
use crate::{Backlog, Output};

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
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, OutboxRuntime, Processor};
/// use ardea_core::{Rows, Timestamp, Watermark};
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
    states: KeyedState<K, S>,
    backlog: Backlog<U>,
    clock: Clock,
    /// Buffered records whose partition is not restored yet.
    buffered: BufferedRecords<T>,
}

impl<T, K: Key, S, U, KF, C, R, X> StatefulMapP<T, K, S, U, KF, C, R, X> {
    /// Creates an operator with `logic`, which instances share.
    pub fn new(logic: Arc<KeyedLogic<KF, C, R, X>>) -> Self {
        let mut states = KeyedState::default();
        states.allow_lazy_restore();
        states.allow_spilling();
        StatefulMapP {
            logic,
            states,
            backlog: Backlog::default(),
            clock: Clock::system(),
            buffered: BufferedRecords::default(),
        }
    }

    /// Sets the time-to-live: a key that no record and no timer has used for `ttl` of event time is
    /// removed.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.states.set_ttl(ttl);
        self
    }

    /// Sets the serializers of keys and states, so that states and timers are checkpointed.
    pub fn with_codecs(mut self, codecs: StateCodecs<K, S>) -> Self {
        self.states.set_codecs(codecs);
        self
    }

    /// Returns the number of keys with a state.
    pub fn keys(&self) -> usize {
        self.states.len()
    }
}

/// Calls user code for the key of a slot, then removes the key if the code has cleared its state.
#[inline]
fn with_key<K: Key, S, U>(
    states: &mut KeyedState<K, S>,
    slot: u32,
    (time, fired): (Timestamp, Option<TimerKind>),
    output: &mut Output<'_, U>,
    call: impl FnOnce(&mut S, &K, &mut KeyedContext<'_, '_, U>),
) {
    let Some((key, state, timers)) = states.use_at(slot, time) else {
        return;
    };
    let mut context = KeyedContext {
        output,
        timers,
        time,
        fired,
        cleared: false,
    };
    call(state, key, &mut context);
    if context.cleared {
        states.remove(slot);
    }
}

/// Processes one record.
#[inline]
fn process_record<T, K: Key, S, U, KF, C, R, X>(
    logic: &KeyedLogic<KF, C, R, X>,
    states: &mut KeyedState<K, S>,
    (record, time): (T, Timestamp),
    output: &mut Output<'_, U>,
) -> Result<()>
where
    KF: Fn(&T) -> K,
    C: Fn() -> S,
    R: Fn(&mut S, &K, T, Timestamp, &mut KeyedContext<'_, '_, U>),
{
    let slot = states.slot(Cow::Owned((logic.key)(&record)), &logic.create)?;
    with_key(states, slot, (time, None), output, |state, key, out| {
        (logic.on_record)(state, key, record, time, out);
    });
    Ok(())
}

impl<T, K, S, U, KF, C, R, X> StatefulMapP<T, K, S, U, KF, C, R, X>
where
    K: Key,
    U: Send + 'static,
    X: Fn(&mut S, &K, Timestamp, &mut KeyedContext<'_, '_, U>),
{
    /// Fires the timers that the watermark has reached. Done when all have fired and their outputs
    /// have found room.
    fn fire_event_timers(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.states.spill()?;
        let made = outbox.has_room(Ordinal::FIRST);
        let (logic, states) = (&*self.logic, &mut self.states);
        let mut output = self.backlog.open(outbox, Ordinal::FIRST)?;
        let mut left = TIMERS_PER_CALL;
        while !output.is_full()
            && let Some((time, slot)) = states.next_event_timer(&mut left)?
        {
            let fired = (time, Some(TimerKind::Event));
            with_key(states, slot, fired, &mut output, |state, key, out| {
                (logic.on_timer)(state, key, time, out);
            });
        }
        let all_fired = !states.has_due()?;
        self.request_wake(outbox);
        Ok(Progress {
            made,
            done: all_fired && self.backlog.is_empty(),
        })
    }

    /// Fires the due processing timers while there is room.
    fn fire_processing_timers(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.states.spill()?;
        let (logic, states) = (&*self.logic, &mut self.states);
        let mut output = self.backlog.open(outbox, Ordinal::FIRST)?;
        let (now, wall) = (self.clock.now(), self.clock.wall());
        states.load_processing_timers(now)?;
        for _ in 0..TIMERS_PER_CALL {
            if output.is_full() {
                break;
            }
            let Some((deadline, slot)) = states.next_processing_timer(now) else {
                break;
            };
            let fired = (states.watermark().0, Some(TimerKind::Processing));
            with_key(states, slot, fired, &mut output, |state, key, out| {
                (logic.on_timer)(state, key, wall - (now - deadline), out);
            });
        }
        self.request_wake(outbox);
        Ok(())
    }

    fn request_wake(&self, outbox: &mut Outbox) {
        self.backlog.wake_if_waiting(outbox);
        if let Some(deadline) = self.states.first_processing_timer() {
            outbox.wake_at(deadline);
        }
    }
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
        self.states.open(context)
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.states.spill()?;
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
        let (logic, states, aside) = (&*self.logic, &mut self.states, &mut self.buffered);
        let mut output = self.backlog.open(outbox, Ordinal::FIRST)?;
        let mut failed = Ok(());
        if !output.is_full() {
            take_until(inbox.rows::<T>()?, |record, time| {
                if is_away {
                    let partition = PartitionId::of(&(logic.key)(&record));
                    if states.must_buffer(partition) {
                        aside.put(partition, record, time);
                        return break_if(aside.is_full(most));
                    }
                }
                if let Err(error) = process_record(logic, states, (record, time), &mut output) {
                    failed = Err(error);
                    return ControlFlow::Break(());
                }
                break_if(output.is_full())
            });
        }
        self.request_wake(outbox);
        self.states.report_size();
        failed
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if self.buffered.holds(watermark) {
            return Ok(Progress::DONE);
        }
        self.states.set_watermark(watermark);
        let progress = self.fire_event_timers(outbox)?;
        if progress.done && !self.states.is_restoring() {
            outbox.watermark(watermark);
        }
        Ok(progress)
    }

    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let progress = self.backlog.settle(outbox, Ordinal::FIRST)?;
        self.request_wake(outbox);
        Ok(progress)
    }

    fn on_edge_done(&mut self, _: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        self.backlog.settle(outbox, Ordinal::FIRST)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.states.set_watermark(Watermark::END);
        self.fire_event_timers(outbox)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.fire_processing_timers(outbox)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.states.unsaved_state()
    }

    fn catch_up(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        // As before other records of restored keys.
        let fired = self.fire_event_timers(outbox)?;
        if !fired.done {
            return Ok(fired);
        }
        let (logic, states) = (&*self.logic, &mut self.states);
        let mut output = self.backlog.open(outbox, Ordinal::FIRST)?;
        let mut made = fired.made;
        while !output.is_full()
            && let Some(partition) = states.next_buffered_partition()
        {
            made = true;
            match self.buffered.take(partition) {
                Some(record) => process_record(logic, states, record, &mut output)?,
                None => states.finish_buffered_partition(),
            }
        }
        let is_done = states.next_buffered_partition().is_none();
        self.request_wake(outbox);
        let Some(watermark) = self.buffered.take_watermark() else {
            return Ok(Progress {
                made,
                done: is_done && self.backlog.is_empty(),
            });
        };
        self.states.set_watermark(watermark);
        self.fire_event_timers(outbox)
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        self.states.into_memory()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.states)
    }
}

impl<T, K: Key, S, U, KF, C, R, X> fmt::Debug for StatefulMapP<T, K, S, U, KF, C, R, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatefulMapP")
            .field("states", &self.states)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "stateful_map_tests.rs"]
mod tests;
