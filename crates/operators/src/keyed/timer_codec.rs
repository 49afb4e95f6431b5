//! Serialization of a key's state and timers, for snapshots and disk.

use std::time::Duration;

use ardea_core::{Clock, Key, RestoredEntry, RestoredState, Result, StateChunk, Timestamp};

use crate::keyed::context::Timers;
use crate::keyed::state_codec::put_times;
use crate::keyed::stateful_map::{TimedState, nanos};
use crate::keyed::{DueTimes, STATE, StateCodecs, put_time};

/// Appends the entry of a key: its state, the event time of its last use, and its timers.
/// Processing timers are written as wall-clock times.
pub(super) fn write<K: Key, S>(
    kept: &Option<StateCodecs<K, S>>,
    (timers, clock): (&Timers, &Clock),
    chunk: &mut StateChunk,
    (key, slot): (&K, u32),
    state: &TimedState<S>,
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

/// Appends the entry of a key that is spilled, removes its timers, and returns its due times.
pub(super) fn freeze<K: Key, S>(
    kept: &Option<StateCodecs<K, S>>,
    (timers, clock, ttl): (&mut Timers, &Clock, Option<Duration>),
    chunk: &mut StateChunk,
    (key, slot): (&K, u32),
    state: &TimedState<S>,
) -> Result<DueTimes> {
    write(kept, (&*timers, clock), chunk, (key, slot), state)?;
    let event = timers.event.of(slot).next();
    let processing = timers.processing.of(slot).next();
    let expiry = ttl.map(|ttl| state.touched + ttl);
    timers.forget(slot);
    Ok(DueTimes::of(
        event.map(Timestamp::as_micros),
        processing.map(nanos),
        expiry.map(Timestamp::as_micros),
    ))
}

/// Decodes the entries of restored or loaded keys.
pub(super) struct TimerDecoder<'a, K, S> {
    kept: &'a Option<StateCodecs<K, S>>,
    timers: &'a mut Timers,
    clock: &'a Clock,
    ttl: Option<Duration>,
}

/// The times of a decoded key: event timers, processing timers, and the end of its time-to-live.
pub(super) struct Times {
    event: Vec<Timestamp>,
    processing: Vec<Timestamp>,
    expiry: Option<Timestamp>,
}

impl<'a, K: Key, S> TimerDecoder<'a, K, S> {
    #[inline]
    pub(super) fn new(
        kept: &'a Option<StateCodecs<K, S>>,
        timers: &'a mut Timers,
        clock: &'a Clock,
        ttl: Option<Duration>,
    ) -> Self {
        TimerDecoder {
            kept,
            timers,
            clock,
            ttl,
        }
    }

    /// Returns the key of an entry.
    pub(super) fn key(kept: &Option<StateCodecs<K, S>>, entry: &RestoredEntry<'_>) -> Result<K> {
        let kept = kept.as_ref().ok_or_else(|| RestoredState::unknown(entry))?;
        kept.read_as(STATE, entry).map(|(key, _)| key)
    }

    /// Returns the key, state and times of an entry.
    pub(super) fn read(&self, entry: &RestoredEntry<'_>) -> Result<(K, TimedState<S>, Times)> {
        let kept = self.kept.as_ref();
        let kept = kept.ok_or_else(|| RestoredState::unknown(entry))?;
        let (key, state, mut rest) = kept.read(entry)?;
        let touched = rest.time()?;
        let times = Times {
            event: rest.times()?.collect::<Result<_>>()?,
            processing: rest.times()?.collect::<Result<_>>()?,
            expiry: self.ttl.map(|ttl| touched + ttl),
        };
        Ok((key, TimedState { state, touched }, times))
    }

    /// Sets the times for the key's present slot.
    pub(super) fn set(&mut self, slot: u32, times: Times) {
        for time in times.event {
            self.timers.event.set(slot, time);
        }
        if !times.processing.is_empty() {
            let (now, wall) = (self.clock.now(), self.clock.wall());
            for time in times.processing {
                let deadline = deadline_of(time, now, wall);
                self.timers.processing.set(slot, deadline);
            }
        }
        if let Some(expiry) = times.expiry {
            self.timers.expiry.set(slot, expiry);
        }
    }

    /// Decodes the entry of a key that is assigned to a slot.
    pub(super) fn decode(&mut self, slot: u32, entry: &RestoredEntry<'_>) -> Result<TimedState<S>> {
        let (_, state, times) = self.read(entry)?;
        self.set(slot, times);
        Ok(state)
    }
}

/// Converts a wall-clock time to the monotonic clock.
fn deadline_of(time: Timestamp, now: Duration, wall: Timestamp) -> Duration {
    if time >= wall {
        now.saturating_add(time.since(wall))
    } else {
        now.saturating_sub(wall.since(time))
    }
}
