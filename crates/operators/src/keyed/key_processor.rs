//! Processing of one key: records, timers and time-to-live.

use std::borrow::Cow;
use std::time::Duration;

use ardea_core::{Clock, Key, Result, Timestamp, Watermark};

use crate::Output;
use crate::keyed::context::Timers;
use crate::keyed::stateful_map::TimedState;
use crate::keyed::timer_codec::{TimerDecoder, write};
use crate::keyed::{DueKind, KeyedContext, KeyedLogic, KeyedStates, StateCodecs, TimerKind};

/// The maximum number of due keys loaded from disk at a time.
const DUE_PER_LOAD: usize = 64;

/// A due timer or expiry.
pub(super) enum DueEvent {
    Timer(Timestamp, u32, TimerKind),
    Expiry(Timestamp, u32),
}

/// The parts of the processor needed for one key, without the backlog, which the output borrows.
pub(super) struct KeyProcessor<'a, K, S, KF, C, R, X> {
    pub(super) logic: &'a KeyedLogic<KF, C, R, X>,
    pub(super) states: &'a mut KeyedStates<K, TimedState<S>>,
    pub(super) timers: &'a mut Timers,
    pub(super) kept: &'a Option<StateCodecs<K, S>>,
    pub(super) clock: &'a Clock,
    pub(super) ttl: Option<Duration>,
    pub(super) watermark: Watermark,
}

impl<K, S, KF, C, R, X> KeyProcessor<'_, K, S, KF, C, R, X>
where
    K: Key,
{
    /// Processes one record.
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
        let create = || TimedState {
            state: (logic.create)(),
            touched: Timestamp::MIN,
        };
        let mut come_back = TimerDecoder::new(self.kept, self.timers, self.clock, self.ttl);
        let key = Cow::Owned(key);
        let slot = self
            .states
            .slot_or_load(key, create, |slot, entry| come_back.decode(slot, entry))?;
        self.with_key(slot, time, None, output, |state, key, out| {
            (logic.on_record)(state, key, record, time, out)
        });
        Ok(())
    }

    /// Fires one timer.
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

    /// Prepares the state or timers of a key for a change: a snapshot in progress retains the old
    /// contents.
    #[inline]
    pub(super) fn touch(&mut self, slot: u32) {
        self.states.touch(slot, |chunk, key, state| {
            let with = (&*self.timers, self.clock);
            write(self.kept, with, chunk, (key, slot), state)
        });
    }

    /// Calls user code for the key of a slot, then removes the key if the code has cleared its
    /// state.
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

    /// Returns the time of the next event timer or expiry of the keys in memory.
    fn next_here(&self, is_ending: bool) -> Option<Timestamp> {
        let expiry = self.timers.expiry.first().filter(|_| !is_ending);
        let firsts = [self.timers.event.first(), expiry];
        firsts.into_iter().flatten().map(|(time, _)| time).min()
    }

    /// Loads some keys from disk that are due by the watermark, and before any key in memory.
    fn load_earlier_due(&mut self) -> Result<()> {
        let is_ending = self.watermark == Watermark::END;
        for kind in [DueKind::Event, DueKind::Expiry] {
            let first = self.states.first_due(kind);
            let Some(first) = first.filter(|_| !is_ending || kind != DueKind::Expiry) else {
                continue;
            };
            // The order of equal due times is undefined, so keys with equal times need not all be
            // loaded at once.
            let here = self.next_here(is_ending).map(Timestamp::as_micros);
            let before = here.map_or(i64::MAX, |here| here.saturating_sub(1));
            let until = before.min(self.watermark.0.as_micros());
            if first <= until {
                self.load_due(kind, until)?;
            }
        }
        Ok(())
    }

    /// Loads keys from disk that are due.
    pub(super) fn load_due(&mut self, kind: DueKind, until: i64) -> Result<()> {
        let kept = self.kept;
        let mut come_back = TimerDecoder::new(kept, self.timers, self.clock, self.ttl);
        self.states.load_due(
            (kind, until, DUE_PER_LOAD),
            |entry| TimerDecoder::key(kept, entry),
            |slot, entry| come_back.decode(slot, entry),
        )?;
        Ok(())
    }

    /// Returns the next event due by the watermark: a timer, or a key that may have expired.
    pub(super) fn next_event_due(&mut self) -> Result<Option<DueEvent>> {
        if self.states.has_disk() {
            self.load_earlier_due()?;
        }
        let until = self.watermark.0;
        let ending = self.watermark == Watermark::END;
        let expiry = self.timers.expiry.first_due(until).filter(|_| !ending);
        Ok(match (self.timers.event.first_due(until), expiry) {
            (Some((time, _)), Some((end, slot))) if end < time => Some(DueEvent::Expiry(end, slot)),
            (Some((time, slot)), _) => Some(DueEvent::Timer(time, slot, TimerKind::Event)),
            (None, Some((end, slot))) => Some(DueEvent::Expiry(end, slot)),
            (None, None) => None,
        })
    }

    /// Removes the key at `slot` if its time-to-live since the last use ends by `deadline`.
    /// Otherwise sets its next expiry, which may also be due. Timers before the next expiry fire
    /// first.
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
