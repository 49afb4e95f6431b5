//! User code with a state and timers for each key.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Clock, Cut, CutWriter, Epoch, Inbox, InstanceContext, InstanceMetrics, Key, Ordinal, Outbox,
    Processor, Progress, RestoredState, Result, StateShape, Timestamp, Waker, Watermark,
};

use crate::keyed::context::Timers;
use crate::keyed::kept_timers::{Thaw, freeze, write};
use crate::keyed::{
    Due, KeptAs, KeyedContext, KeyedLogic, KeyedStates, STATE, TimerKind, unless_kept,
};
use crate::passing::{break_if, take_until};
use crate::{Backlog, Output};

/// How many timers a call fires at most, so that it stays short whatever falls due at once.
const TIMERS_PER_CALL: usize = 512;
/// How many keys come back from disk at a time when something is due of them.
const DUE_PER_LOOK: usize = 64;

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
    records: PhantomData<fn(T)>,
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
            records: PhantomData,
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

/// What fell due.
enum Fallen {
    Timer(Timestamp, u32, TimerKind),
    Expiry(Timestamp, u32),
}

/// The parts of the processor that dealing with one key needs, apart from the backlog that its output borrows.
struct Desk<'a, K, S, KF, C, R, X> {
    logic: &'a KeyedLogic<KF, C, R, X>,
    states: &'a mut KeyedStates<K, Kept<S>>,
    timers: &'a mut Timers,
    kept: &'a Option<KeptAs<K, S>>,
    clock: &'a Clock,
    ttl: Option<Duration>,
    watermark: Watermark,
}

impl<K, S, KF, C, R, X> Desk<'_, K, S, KF, C, R, X>
where
    K: Key,
{
    /// Deals with one record.
    #[inline]
    fn record<T, U>(&mut self, record: T, time: Timestamp, output: &mut Output<'_, U>) -> Result<()>
    where
        KF: Fn(&T) -> K,
        C: Fn() -> S,
        R: Fn(&mut S, &K, T, Timestamp, &mut KeyedContext<'_, '_, U>),
    {
        let logic = self.logic;
        let key = (logic.key)(&record);
        let create = || Kept {
            state: (logic.create)(),
            touched: Timestamp::MIN,
        };
        let mut come_back = Thaw::new(self.kept, self.timers, self.clock, self.ttl);
        let key = Cow::Owned(key);
        let slot = self
            .states
            .slot_or_load(key, create, |slot, entry| come_back.thaw(slot, entry))?;
        self.with_key(slot, time, None, output, |state, key, out| {
            (logic.on_record)(state, key, record, time, out)
        });
        Ok(())
    }

    /// Deals with one timer.
    fn timer<U>(&mut self, time: Timestamp, slot: u32, kind: TimerKind, output: &mut Output<'_, U>)
    where
        X: Fn(&mut S, &K, Timestamp, &mut KeyedContext<'_, '_, U>),
    {
        let logic = self.logic;
        let event_time = match kind {
            TimerKind::Event => time,
            TimerKind::Processing => self.watermark.0,
        };
        self.with_key(slot, event_time, Some(kind), output, |state, key, out| {
            (logic.on_timer)(state, key, time, out)
        });
    }

    /// What is remembered of a key, or one of its timers, is about to change.
    #[inline]
    fn touch(&mut self, slot: u32) {
        self.states.touch(slot, |chunk, key, state| {
            let with = (&*self.timers, self.clock);
            write(self.kept, with, chunk, (key, slot), state)
        });
    }

    /// Calls user code for the key of a slot, then forgets the key if that said so.
    #[inline]
    fn with_key<U>(
        &mut self,
        slot: u32,
        time: Timestamp,
        fired: Option<TimerKind>,
        output: &mut Output<'_, U>,
        call: impl FnOnce(&mut S, &K, &mut KeyedContext<'_, '_, U>),
    ) {
        self.touch(slot);
        let Some((key, kept)) = self.states.get_mut(slot) else {
            return;
        };
        if let Some(ttl) = self.ttl {
            if kept.touched == Timestamp::MIN {
                self.timers
                    .expiry
                    .set(slot, time.max(self.watermark.0) + ttl);
            }
            kept.touched = kept.touched.max(time).max(self.watermark.0);
        }
        let mut context = KeyedContext {
            output,
            timers: self.timers,
            clock: self.clock,
            slot,
            time,
            watermark: self.watermark,
            fired,
            cleared: false,
        };
        call(&mut kept.state, key, &mut context);
        if context.cleared {
            self.forget(slot);
        }
    }

    /// When the watermark's next timer, or the end of a key's time to live, is due of the keys in memory.
    fn next_here(&self, is_ending: bool) -> Option<Timestamp> {
        let expiry = self.timers.expiry.first().filter(|_| !is_ending);
        let firsts = [self.timers.event.first(), expiry];
        firsts.into_iter().flatten().map(|(time, _)| time).min()
    }

    /// Brings keys back from disk, some at a time, of which something is due before it is of any in memory, and by the watermark.
    fn bring_back(&mut self) -> Result<()> {
        let is_ending = self.watermark == Watermark::END;
        for kind in [Due::Event, Due::Expiry] {
            let first = self.states.first_due(kind);
            let Some(first) = first.filter(|_| !is_ending || kind != Due::Expiry) else {
                continue;
            };
            // What is due at the same time comes in any order: however many there are, they need not all come back at once.
            let here = self.next_here(is_ending).map(Timestamp::as_micros);
            let before = here.map_or(i64::MAX, |here| here.saturating_sub(1));
            let until = before.min(self.watermark.0.as_micros());
            if first <= until {
                self.load_due(kind, until)?;
            }
        }
        Ok(())
    }

    /// Brings keys back from disk of which something is due.
    fn load_due(&mut self, kind: Due, until: i64) -> Result<()> {
        let kept = self.kept;
        let mut come_back = Thaw::new(kept, self.timers, self.clock, self.ttl);
        self.states.load_due(
            (kind, until, DUE_PER_LOOK),
            |entry| Thaw::key(kept, entry),
            |slot, entry| come_back.thaw(slot, entry),
        )?;
        Ok(())
    }

    /// What the watermark has brought next: a timer, or a key whose time to live may be over.
    fn next_event_due(&mut self) -> Result<Option<Fallen>> {
        if self.states.has_disk() {
            self.bring_back()?;
        }
        let until = self.watermark.0;
        let ending = self.watermark == Watermark::END;
        let expiry = self.timers.expiry.first_due(until).filter(|_| !ending);
        Ok(match (self.timers.event.first_due(until), expiry) {
            (Some((time, _)), Some((end, slot))) if end < time => Some(Fallen::Expiry(end, slot)),
            (Some((time, slot)), _) => Some(Fallen::Timer(time, slot, TimerKind::Event)),
            (None, Some((end, slot))) => Some(Fallen::Expiry(end, slot)),
            (None, None) => None,
        })
    }

    /// Forgets a key that nobody touched; else sets its next deadline, which may have come as well: but timers before it come first, as they
    /// do where the key comes back from a snapshot with that deadline.
    fn expire(&mut self, deadline: Timestamp, slot: u32) {
        self.timers.expiry.forget(slot);
        let (Some(kept), Some(ttl)) = (self.states.get(slot), self.ttl) else {
            return;
        };
        let end = kept.touched + ttl;
        if end <= deadline {
            self.forget(slot);
        } else {
            self.timers.expiry.set(slot, end);
        }
    }

    fn forget(&mut self, slot: u32) {
        self.touch(slot);
        self.states.remove(slot);
        self.timers.forget(slot);
    }
}

impl<T, K, S, U, KF, C, R, X> StatefulMapP<T, K, S, U, KF, C, R, X>
where
    K: Key,
    U: Send + 'static,
    X: Fn(&mut S, &K, Timestamp, &mut KeyedContext<'_, '_, U>),
{
    /// The processor in two parts that can be borrowed apart.
    #[expect(
        clippy::type_complexity,
        reason = "the parts have the parameters of the whole"
    )]
    fn desk(&mut self) -> (Desk<'_, K, S, KF, C, R, X>, &mut Backlog<U>) {
        let desk = Desk {
            logic: &self.logic,
            states: &mut self.states,
            timers: &mut self.timers,
            kept: &self.kept,
            clock: &self.clock,
            ttl: self.ttl,
            watermark: self.watermark,
        };
        (desk, &mut self.backlog)
    }

    /// Fires what the watermark has brought: done when all has fired and found room.
    fn fire_event_timers(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.relieve()?;
        let made = outbox.has_room(Ordinal::FIRST);
        let (mut desk, backlog) = self.desk();
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
        let (mut desk, backlog) = self.desk();
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
        let (mut desk, backlog) = self.desk();
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        let mut failed = Ok(());
        if !output.is_full() {
            take_until(inbox.rows::<T>()?, |record, time| {
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
        self.watermark = watermark;
        let progress = self.fire_event_timers(outbox)?;
        if progress.done {
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
        let on_disk = self.states.first_due(Due::Processing);
        if self.timers.processing.first().is_some() || on_disk.is_some() {
            // There is no outbox here to ask to be woken at their time.
            self.waker.wake();
        }
        Ok(Progress::DONE)
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
