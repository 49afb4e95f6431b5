//! User code with a state and timers for each key.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Clock, Cut, CutWriter, Epoch, Inbox, InstanceContext, Key, Ordinal, Outbox, Processor,
    Progress, RestoredState, Result, StateChunk, StateShape, Timestamp, Waker, Watermark,
};

use crate::keyed::context::Timers;
use crate::keyed::kept::put_times;
use crate::keyed::{
    KeptAs, KeyedContext, KeyedLogic, KeyedStates, STATE, TimerKind, put_time, unless_kept,
};
use crate::passing::{break_if, take_until};
use crate::{Backlog, Output};

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
    records: PhantomData<fn(T)>,
}

/// The state of a key, and when it was touched last, in event time.
struct Kept<S> {
    state: S,
    touched: Timestamp,
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
enum Due {
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
    fn record<T, U>(&mut self, record: T, time: Timestamp, output: &mut Output<'_, U>)
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
        let slot = self.states.slot_or_insert(Cow::Owned(key), create);
        self.with_key(slot, time, None, output, |state, key, out| {
            (logic.on_record)(state, key, record, time, out)
        });
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

    /// What the watermark has brought next: a timer, or a key whose time to live may be over.
    fn next_event_due(&mut self) -> Option<Due> {
        let until = self.watermark.0;
        let ending = self.watermark == Watermark::END;
        let expiry = self.timers.expiry.first_due(until).filter(|_| !ending);
        match (self.timers.event.first_due(until), expiry) {
            (Some((time, _)), Some((end, slot))) if end < time => Some(Due::Expiry(end, slot)),
            (Some((time, slot)), _) => Some(Due::Timer(time, slot, TimerKind::Event)),
            (None, Some((end, slot))) => Some(Due::Expiry(end, slot)),
            (None, None) => None,
        }
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
        let made = outbox.has_room(Ordinal::FIRST);
        let (mut desk, backlog) = self.desk();
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        let mut left = TIMERS_PER_CALL;
        let mut due = desk.next_event_due();
        while left > 0 && !output.is_full() {
            match due {
                None => break,
                Some(Due::Expiry(end, slot)) => desk.expire(end, slot),
                Some(Due::Timer(time, slot, kind)) => {
                    desk.touch(slot);
                    desk.timers.event.clear(slot, time);
                    desk.timer(time, slot, kind, &mut output);
                }
            }
            left -= 1;
            due = desk.next_event_due();
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
        let (mut desk, backlog) = self.desk();
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        let now = desk.clock.now();
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
        self.waker = context.waker.clone();
        if context.guarantee.keeps_state() {
            self.states.keep_track();
        }
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let (mut desk, backlog) = self.desk();
        let mut output = backlog.open(outbox, Ordinal::FIRST)?;
        if !output.is_full() {
            take_until(inbox.rows::<T>()?, |record, time| {
                desk.record(record, time, &mut output);
                break_if(output.is_full())
            });
        }
        self.ask_to_be_woken(outbox);
        Ok(())
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
        self.states.take_cut(cut);
        Ok(())
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let (kept, with) = (&self.kept, (&self.timers, &self.clock));
        self.states.write_cut(writer, |chunk, key, slot, state| {
            write(kept, with, chunk, (key, slot), state)
        })
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.states.commit(epoch))
    }

    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        self.states.give_up(epoch);
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        for entry in state {
            let Some(kept) = &self.kept else {
                return Err(RestoredState::unknown(&entry));
            };
            let (key, state, mut rest) = kept.read(&entry)?;
            let touched = rest.time()?;
            let slot = self.states.restore(key, Kept { state, touched })?;
            for time in rest.times()? {
                self.timers.event.set(slot, time?);
            }
            for time in rest.times()? {
                let deadline = deadline_of(time?, now, wall);
                self.timers.processing.set(slot, deadline);
            }
            if let Some(ttl) = self.ttl {
                self.timers.expiry.set(slot, touched + ttl);
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        if self.timers.processing.first().is_some() {
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

/// Appends the entry of a key: its state, when it was touched, and its timers; those of the machine's clock by the time of day.
fn write<K: Key, S>(
    kept: &Option<KeptAs<K, S>>,
    (timers, clock): (&Timers, &Clock),
    chunk: &mut StateChunk,
    (key, slot): (&K, u32),
    state: &Kept<S>,
) -> Result<()> {
    let Some(kept) = kept else { return Ok(()) };
    let (now, wall) = (clock.now(), clock.wall());
    let time_of = |deadline: Duration| match deadline.checked_sub(now) {
        Some(left) => wall + left,
        None => wall - (now - deadline),
    };
    kept.write(chunk, key, &state.state, |out| {
        put_time(out, state.touched);
        put_times(out, timers.event.of(slot));
        put_times(out, timers.processing.of(slot).map(time_of));
    })
}

/// When a time of day comes, or came, on the machine's clock.
fn deadline_of(time: Timestamp, now: Duration, wall: Timestamp) -> Duration {
    if time >= wall {
        now.saturating_add(time.since(wall))
    } else {
        now.saturating_sub(wall.since(time))
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
