//! How the state of a key with its timers is written, for cuts and for disk, and read again.

use std::time::Duration;

use ardea_core::{Clock, Key, RestoredEntry, RestoredState, Result, StateChunk, Timestamp};

use crate::keyed::context::Timers;
use crate::keyed::kept::put_times;
use crate::keyed::stateful_map::{Kept, nanos};
use crate::keyed::{Dues, KeptAs, STATE, put_time};

/// Appends the entry of a key: its state, when it was touched, and its timers; those of the machine's clock by the time of day.
pub(super) fn write<K: Key, S>(
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

/// The same for a key that goes to disk: what falls due of it. Its timers go with it.
pub(super) fn freeze<K: Key, S>(
    kept: &Option<KeptAs<K, S>>,
    (timers, clock, ttl): (&mut Timers, &Clock, Option<Duration>),
    chunk: &mut StateChunk,
    (key, slot): (&K, u32),
    state: &Kept<S>,
) -> Result<Dues> {
    write(kept, (&*timers, clock), chunk, (key, slot), state)?;
    let event = timers.event.of(slot).next();
    let processing = timers.processing.of(slot).next();
    let expiry = ttl.map(|ttl| state.touched + ttl);
    timers.forget(slot);
    Ok(Dues::of(
        event.map(Timestamp::as_micros),
        processing.map(nanos),
        expiry.map(Timestamp::as_micros),
    ))
}

/// Reads what was written of keys that come back.
pub(super) struct Thaw<'a, K, S> {
    kept: &'a Option<KeptAs<K, S>>,
    timers: &'a mut Timers,
    clock: &'a Clock,
    ttl: Option<Duration>,
}

/// The times of a key that comes back: of event timers, of timers of the machine's clock, and the end of its time to live.
pub(super) struct Times {
    event: Vec<Timestamp>,
    processing: Vec<Timestamp>,
    expiry: Option<Timestamp>,
}

impl<'a, K: Key, S> Thaw<'a, K, S> {
    #[inline]
    pub(super) fn new(
        kept: &'a Option<KeptAs<K, S>>,
        timers: &'a mut Timers,
        clock: &'a Clock,
        ttl: Option<Duration>,
    ) -> Self {
        Thaw {
            kept,
            timers,
            clock,
            ttl,
        }
    }

    /// The key of an entry.
    pub(super) fn key(kept: &Option<KeptAs<K, S>>, entry: &RestoredEntry<'_>) -> Result<K> {
        let kept = kept.as_ref().ok_or_else(|| RestoredState::unknown(entry))?;
        kept.read_as(STATE, entry).map(|(key, _)| key)
    }

    /// The key and the state in an entry, and the times.
    pub(super) fn read(&self, entry: &RestoredEntry<'_>) -> Result<(K, Kept<S>, Times)> {
        let kept = self.kept.as_ref();
        let kept = kept.ok_or_else(|| RestoredState::unknown(entry))?;
        let (key, state, mut rest) = kept.read(entry)?;
        let touched = rest.time()?;
        let times = Times {
            event: rest.times()?.collect::<Result<_>>()?,
            processing: rest.times()?.collect::<Result<_>>()?,
            expiry: self.ttl.map(|ttl| touched + ttl),
        };
        Ok((key, Kept { state, touched }, times))
    }

    /// Sets the times for the slot that the key has now.
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

    /// What an entry says of the key that comes to a slot.
    pub(super) fn thaw(&mut self, slot: u32, entry: &RestoredEntry<'_>) -> Result<Kept<S>> {
        let (_, state, times) = self.read(entry)?;
        self.set(slot, times);
        Ok(state)
    }
}

/// When a time of day comes, or came, on the machine's clock.
fn deadline_of(time: Timestamp, now: Duration, wall: Timestamp) -> Duration {
    if time >= wall {
        now.saturating_add(time.since(wall))
    } else {
        now.saturating_sub(wall.since(time))
    }
}
