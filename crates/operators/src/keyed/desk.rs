//! Dealing with one key: its records, its timers, and its time to live.

use std::borrow::Cow;
use std::time::Duration;

use ardea_core::{Clock, Key, Result, Timestamp, Watermark};

use crate::Output;
use crate::keyed::context::Timers;
use crate::keyed::kept_timers::{Thaw, write};
use crate::keyed::stateful_map::Kept;
use crate::keyed::{Due, KeptAs, KeyedContext, KeyedLogic, KeyedStates, TimerKind};

/// How many keys come back from disk at a time when something is due of them.
const DUE_PER_LOOK: usize = 64;

/// What fell due.
pub(super) enum Fallen {
    Timer(Timestamp, u32, TimerKind),
    Expiry(Timestamp, u32),
}

/// The parts of the processor that dealing with one key needs, apart from the backlog that its output borrows.
pub(super) struct Desk<'a, K, S, KF, C, R, X> {
    pub(super) logic: &'a KeyedLogic<KF, C, R, X>,
    pub(super) states: &'a mut KeyedStates<K, Kept<S>>,
    pub(super) timers: &'a mut Timers,
    pub(super) kept: &'a Option<KeptAs<K, S>>,
    pub(super) clock: &'a Clock,
    pub(super) ttl: Option<Duration>,
    pub(super) watermark: Watermark,
}

impl<K, S, KF, C, R, X> Desk<'_, K, S, KF, C, R, X>
where
    K: Key,
{
    /// Deals with one record.
    #[inline]
    pub(super) fn record<T, U>(
        &mut self,
        record: T,
        time: Timestamp,
        output: &mut Output<'_, U>,
    ) -> Result<()>
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
    pub(super) fn timer<U>(
        &mut self,
        time: Timestamp,
        slot: u32,
        kind: TimerKind,
        output: &mut Output<'_, U>,
    ) where
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
    pub(super) fn touch(&mut self, slot: u32) {
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
    pub(super) fn load_due(&mut self, kind: Due, until: i64) -> Result<()> {
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
    pub(super) fn next_event_due(&mut self) -> Result<Option<Fallen>> {
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
    pub(super) fn expire(&mut self, deadline: Timestamp, slot: u32) {
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
