//! Timers that fire, and keys whose time-to-live ends.

use std::time::Duration;

use ardea_core::{Key, Result, Timestamp, Watermark};

use super::timer_codec::nanos;
use super::{KeyedState, read};
use crate::table::spilled_entry::DueKind;

/// The maximum number of due keys loaded from disk at a time.
const DUE_PER_LOAD: usize = 64;

/// A due event timer or end of a time-to-live.
enum DueEvent {
    Timer(Timestamp, u32),
    Expiry(Timestamp, u32),
}

impl<K: Key, S> KeyedState<K, S> {
    /// Removes the next event timer that the watermark has reached, and returns its time and slot.
    /// Keys that expire before it are removed. `None` if nothing is due, or if `left` reaches zero:
    /// each timer and each expiry takes one of `left`, which keeps the call short.
    ///
    /// # Errors
    /// Those of reading from disk.
    pub fn next_event_timer(&mut self, left: &mut usize) -> Result<Option<(Timestamp, u32)>> {
        while *left > 0 {
            let Some(due) = self.next_due()? else {
                return Ok(None);
            };
            *left -= 1;
            match due {
                DueEvent::Expiry(end, slot) => self.expire(end, slot),
                DueEvent::Timer(time, slot) => {
                    self.touch(slot);
                    self.timers.event.clear(slot, time);
                    return Ok(Some((time, slot)));
                }
            }
        }
        Ok(None)
    }

    /// Returns true if an event timer or the end of a time-to-live is due at the watermark.
    ///
    /// # Errors
    /// Those of reading from disk.
    pub fn has_due(&mut self) -> Result<bool> {
        Ok(self.next_due()?.is_some())
    }

    /// Removes at most `most` keys whose time-to-live ends by the watermark, for operators without
    /// timers. Returns true if none is left.
    ///
    /// # Errors
    /// Those of reading from disk.
    pub fn remove_expired(&mut self, mut most: usize) -> Result<bool> {
        while self.next_event_timer(&mut most)?.is_some() {}
        Ok(!self.has_due()?)
    }

    /// Removes the next processing timer that the clock has reached at `now`, and returns its
    /// deadline and slot.
    pub fn next_processing_timer(&mut self, now: Duration) -> Option<(Duration, u32)> {
        let (deadline, slot) = self.timers.processing.first_due(now)?;
        self.touch(slot);
        self.timers.processing.clear(slot, deadline);
        Some((deadline, slot))
    }

    /// Loads keys from disk whose processing timers are due at `now`. Called before
    /// [`next_processing_timer`](Self::next_processing_timer).
    ///
    /// # Errors
    /// Those of reading from disk.
    pub fn load_processing_timers(&mut self, now: Duration) -> Result<()> {
        match self.table.first_due(DueKind::Processing) {
            Some(_) => self.load_due(DueKind::Processing, nanos(now)),
            None => Ok(()),
        }
    }

    /// Returns the deadline of the first processing timer, on the clock of the instance.
    pub fn first_processing_timer(&self) -> Option<Duration> {
        let here = self.timers.processing.first().map(|(deadline, _)| deadline);
        let on_disk = self.table.first_due(DueKind::Processing);
        let on_disk = on_disk.map(|deadline| Duration::from_nanos(deadline.unsigned_abs()));
        here.into_iter().chain(on_disk).min()
    }

    /// Returns the next event due by the watermark. At the end of the input no key expires.
    fn next_due(&mut self) -> Result<Option<DueEvent>> {
        if self.table.has_disk() {
            self.load_earlier_due()?;
        }
        let (until, is_ending) = (self.timers.watermark.0, self.is_ending());
        let expiry = self.timers.expiry.first_due(until).filter(|_| !is_ending);
        Ok(match (self.timers.event.first_due(until), expiry) {
            (Some((time, _)), Some((end, slot))) if end < time => Some(DueEvent::Expiry(end, slot)),
            (Some((time, slot)), _) => Some(DueEvent::Timer(time, slot)),
            (None, Some((end, slot))) => Some(DueEvent::Expiry(end, slot)),
            (None, None) => None,
        })
    }

    fn is_ending(&self) -> bool {
        self.timers.watermark == Watermark::END
    }

    /// Removes the key at `slot` if its time-to-live since the last use ends by `deadline`.
    /// Otherwise sets its next expiry, which may also be due. Timers before the next expiry fire
    /// first.
    fn expire(&mut self, deadline: Timestamp, slot: u32) {
        self.timers.expiry.forget(slot);
        let (Some(ttl), Some(used)) = (self.timers.ttl, self.table.get(slot).map(|it| it.used))
        else {
            return;
        };
        if used == Timestamp::MIN {
            // The key was saved without a time-to-live, which begins now.
            let _ = self.use_at(slot, self.timers.watermark.0);
        } else if used + ttl <= deadline {
            self.remove(slot);
        } else {
            self.timers.expiry.set(slot, used + ttl);
        }
    }

    /// Returns the time of the next event timer or expiry of the keys in memory.
    fn next_in_memory(&self, is_ending: bool) -> Option<Timestamp> {
        let expiry = self.timers.expiry.first().filter(|_| !is_ending);
        let firsts = [self.timers.event.first(), expiry];
        firsts.into_iter().flatten().map(|(time, _)| time).min()
    }

    /// Loads some keys from disk that are due by the watermark, and before any key in memory.
    fn load_earlier_due(&mut self) -> Result<()> {
        let is_ending = self.is_ending();
        for kind in [DueKind::Event, DueKind::Expiry] {
            let first = self.table.first_due(kind);
            let Some(first) = first.filter(|_| !is_ending || kind != DueKind::Expiry) else {
                continue;
            };
            // The order of equal due times is undefined, so keys with equal times need not all be
            // loaded at once.
            let here = self.next_in_memory(is_ending).map(Timestamp::as_micros);
            let before = here.map_or(i64::MAX, |here| here.saturating_sub(1));
            let until = before.min(self.timers.watermark.0.as_micros());
            if first <= until {
                self.load_due(kind, until)?;
            }
        }
        Ok(())
    }

    /// Loads keys from disk that are due.
    fn load_due(&mut self, kind: DueKind, until: i64) -> Result<()> {
        let (name, codecs, timers) = (self.table.name, &self.codecs, &mut self.timers);
        self.table.load_due(
            (kind, until, DUE_PER_LOAD),
            |entry| read(name, codecs, entry).map(|(key, _, _)| key),
            |slot, entry| {
                let (_, state, times) = read(name, codecs, entry)?;
                timers.set(slot, times);
                Ok(state)
            },
        )?;
        Ok(())
    }
}
