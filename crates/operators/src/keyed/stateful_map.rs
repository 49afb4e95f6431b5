//! User code with a state and timers for each key.

use std::any::Any;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Clock, Cut, CutWriter, Epoch, Inbox, InstanceContext, InstanceMetrics, Key, Ordinal, Outbox,
    PartitionId, Processor, Progress, RestoredState, Result, StateShape, Timestamp, Waker,
    Watermark,
};

use crate::Backlog;
use crate::keyed::aside::Aside;
use crate::keyed::context::Timers;
use crate::keyed::desk::{Desk, Fallen};
use crate::keyed::kept_timers::{Thaw, freeze, write};
use crate::keyed::{
    Due, KeptAs, KeyedContext, KeyedLogic, KeyedStates, STATE, TimerKind, unless_kept,
};
use crate::passing::{break_if, take_until};

/// How many timers a call fires at most, so that it stays short whatever falls due at once.
const TIMERS_PER_CALL: usize = 512;

/// Runs user code with a state for each key, which may emit any number of records and set timers.
///
/// * **Event timers** fire in order of time when the watermark reaches them, before it is passed on; those that remain
///   fire at the end of the input.
/// * **Processing timers** fire when the machine's clock has reached them, as long as input is expected.
/// * **Time to live.** With [`ttl`](StatefulMapP::ttl) a key that no record and no timer has touched for so long, in event
///   time, is forgotten when the watermark says so: its state and its timers.
///
/// Records must come by [`Keyed`](ardea_core::Routing::Keyed) routing on the same key. Cost: a table look-up a record; a
/// timer is logarithmic in the number of timers.
///
/// This one counts the records of each key and says the count a minute after the first:
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
    states: KeyedStates<K, Kept<S>>,
    timers: Timers,
    /// How states are written where they have to survive it.
    kept: Option<KeptAs<K, S>>,
    backlog: Backlog<U>,
    watermark: Watermark,
    clock: Clock,
    waker: Waker,
    metrics: Arc<InstanceMetrics>,
    /// Records that wait for their partition.
    aside: Aside<T>,
}

/// The state of a key, and when it was touched last, in event time.
pub(super) struct Kept<S> {
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
    /// By `logic`, which all instances share.
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
            aside: Aside::default(),
        }
    }
}

impl<T, K: Key, S, U, KF, C, R, X> StatefulMapP<T, K, S, U, KF, C, R, X> {
    /// Forgets a key that has not been touched for `ttl` of event time.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Says how keys and states are written, so that they survive it, and the timers with them.
    pub fn kept_as(mut self, kept: KeptAs<K, S>) -> Self {
        self.kept = Some(kept);
        self
    }

    /// How many keys have a state.
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
    /// The processor in parts that can be borrowed apart.
    #[expect(
        clippy::type_complexity,
        reason = "the parts have the parameters of the whole"
    )]
    fn desk(&mut self) -> (Desk<'_, K, S, KF, C, R, X>, &mut Backlog<U>, &mut Aside<T>) {
        let desk = Desk {
            logic: &self.logic,
            states: &mut self.states,
            timers: &mut self.timers,
            kept: &self.kept,
            clock: &self.clock,
            ttl: self.ttl,
            watermark: self.watermark,
        };
        (desk, &mut self.backlog, &mut self.aside)
    }

    /// Fires what the watermark has brought: done when all has fired and found room.
    fn fire_event_timers(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.relieve()?;
        let made = outbox.has_room(Ordinal::FIRST);
        let (mut desk, backlog, _) = self.desk();
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        let mut left = TIMERS_PER_CALL;
        let mut due = desk.next_event_due()?;
        while left > 0 && !output.is_full() {
            match due {
                None => break,
                Some(Fallen::Expiry(end, slot)) => desk.expire(end, slot),
                Some(Fallen::Timer(time, slot, kind)) => {
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

    /// Fires the processing timers that are due, as far as there is room.
    fn fire_processing_timers(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.relieve()?;
        let (mut desk, backlog, _) = self.desk();
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        let now = desk.clock.now();
        if desk.states.first_due(Due::Processing).is_some() {
            desk.load_due(Due::Processing, nanos(now))?;
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
        if let Some(deadline) = self.states.first_due(Due::Processing) {
            outbox.wake_at(Duration::from_nanos(deadline.unsigned_abs()));
        }
    }

    /// Has itself called if there are processing timers: where keys come back there is no outbox to ask to be woken at their time.
    fn wake_for_timers(&self) {
        let on_disk = self.states.first_due(Due::Processing);
        if self.timers.processing.first().is_some() || on_disk.is_some() {
            self.waker.wake();
        }
    }

    /// Moves keys to disk if memory is short.
    fn relieve(&mut self) -> Result<()> {
        let (kept, timers) = (&self.kept, &mut self.timers);
        let (clock, ttl) = (&self.clock, self.ttl);
        self.states.relieve(|chunk, key, slot, state| {
            freeze(kept, (&mut *timers, clock, ttl), chunk, (key, slot), state)
        })
    }
}

/// A time of the machine's clock as it lies on disk.
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
        self.relieve()?;
        let (is_away, most) = (self.states.is_away(), self.states.most_aside());
        // What time has brought for keys that have come back since comes before their records.
        if is_away && (!self.fire_event_timers(outbox)?.done || self.aside.is_full(most)) {
            if outbox.has_room(Ordinal::FIRST) && !self.aside.is_full(most) {
                // Keys may be forgotten without a word: nobody else would call for the others.
                outbox.wake_at(self.clock.now());
            }
            return Ok(());
        }
        let (mut desk, backlog, aside) = self.desk();
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        let mut failed = Ok(());
        if !output.is_full() {
            take_until(inbox.rows::<T>()?, |record, time| {
                if is_away {
                    let partition = PartitionId::of(&(desk.logic.key)(&record));
                    if desk.states.puts_aside(partition) {
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
        if self.aside.holds(watermark) {
            return Ok(Progress::DONE);
        }
        self.watermark = watermark;
        let progress = self.fire_event_timers(outbox)?;
        if progress.done && !self.states.is_away() {
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

    fn forgets(&self) -> Option<&'static str> {
        unless_kept(self.kept.as_ref())
    }

    fn states(&self) -> Vec<StateShape> {
        self.kept.iter().map(|kept| kept.shape(STATE)).collect()
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.states.take_cut(cut)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let (kept, with) = (&self.kept, (&self.timers, &self.clock));
        self.states.write_cut(writer, |chunk, key, slot, state| {
            write(kept, with, chunk, (key, slot), state)
        })
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.states.commit(epoch)
    }

    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.states.give_up(epoch))
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let mut come_back = Thaw::new(&self.kept, &mut self.timers, &self.clock, self.ttl);
            let (key, state, times) = come_back.read(&entry)?;
            self.states.weigh(&entry);
            let slot = self.states.restore(key, state)?;
            come_back.set(slot, times);
            self.relieve()?;
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.states.are_back();
        self.wake_for_timers();
        Ok(Progress::DONE)
    }

    fn begins_early(&mut self, entries: u64) -> bool {
        self.states.begin_early(entries, self.kept.is_some())
    }

    fn on_partition_restored(&mut self, partition: PartitionId) -> Result<()> {
        self.states.come_back(partition);
        self.wake_for_timers();
        Ok(())
    }

    fn catch_up(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        // As before other records of keys that have come back.
        let fired = self.fire_event_timers(outbox)?;
        if !fired.done {
            return Ok(fired);
        }
        let (mut desk, backlog, aside) = self.desk();
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        let mut made = fired.made;
        while let Some(partition) = desk.states.behind().filter(|_| !output.is_full()) {
            made = true;
            match aside.take(partition) {
                Some((record, time)) => desk.record(record, time, &mut output)?,
                None => desk.states.catch_up(),
            }
        }
        let is_done = desk.states.behind().is_none();
        self.ask_to_be_woken(outbox);
        let Some(watermark) = self.aside.take_watermark() else {
            return Ok(Progress {
                made,
                done: is_done && self.backlog.is_empty(),
            });
        };
        self.watermark = watermark;
        self.fire_event_timers(outbox)
    }

    fn take_wanted(&mut self, wanted: &mut Vec<PartitionId>) {
        self.states.take_wanted(wanted);
    }

    fn hand_over(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn take_over(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        let before = *before;
        self.states = before.states;
        self.timers = before.timers;
        true
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
