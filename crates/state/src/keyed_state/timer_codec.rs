//! Serialization of a key's timers and of the time of its last use, for snapshots and disk.
//!
//! They follow the key and the value in an entry: the time of the last use, the event timers, and
//! the processing timers as wall-clock times. A key that has none of them ends with its value.

use std::time::Duration;

use ardea_core::{Result, Timestamp};

use crate::codec::{ValueReader, put_time, put_times};
use crate::keyed_state::timers::Timers;
use crate::table::spilled_entry::DueTimes;

/// The times of a decoded key.
pub(crate) struct KeyTimes {
    /// The event time of the last use; the minimum if it is not known.
    pub(crate) used: Timestamp,
    event: Vec<Timestamp>,
    processing: Vec<Timestamp>,
}

impl KeyTimes {
    /// Reads the times at the end of an entry.
    pub(crate) fn read(mut rest: ValueReader<'_>) -> Result<Self> {
        if rest.is_empty() {
            return Ok(KeyTimes {
                used: Timestamp::MIN,
                event: Vec::new(),
                processing: Vec::new(),
            });
        }
        Ok(KeyTimes {
            used: rest.time()?,
            event: rest.times()?.collect::<Result<_>>()?,
            processing: rest.times()?.collect::<Result<_>>()?,
        })
    }
}

impl Timers {
    /// Appends the times of the key at a slot, which was last used at `used`.
    pub(crate) fn put(&self, slot: u32, used: Timestamp, out: &mut Vec<u8>) {
        let mut event = self.event.of(slot).peekable();
        let mut processing = self.processing.of(slot).peekable();
        if used == Timestamp::MIN && event.peek().is_none() && processing.peek().is_none() {
            return;
        }
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let time_of = |deadline: Duration| match deadline.checked_sub(now) {
            Some(left) => wall + left,
            None => wall - (now - deadline),
        };
        put_time(out, used);
        put_times(out, event);
        put_times(out, processing.map(time_of));
    }

    /// Sets the times of a key that was restored or loaded to a slot.
    pub(crate) fn set(&mut self, slot: u32, times: KeyTimes) {
        for time in times.event {
            self.event.set(slot, time);
        }
        if !times.processing.is_empty() {
            let (now, wall) = (self.clock.now(), self.clock.wall());
            for time in times.processing {
                let deadline = match time >= wall {
                    true => now.saturating_add(time.since(wall)),
                    false => now.saturating_sub(wall.since(time)),
                };
                self.processing.set(slot, deadline);
            }
        }
        if let Some(ttl) = self.ttl {
            self.expiry.set(slot, times.used + ttl);
        }
    }

    /// Removes the timers of a slot whose key is moved to disk, and returns its first due times.
    pub(crate) fn move_to_disk(&mut self, slot: u32, used: Timestamp) -> DueTimes {
        let event = self.event.of(slot).next();
        let processing = self.processing.of(slot).next();
        let expiry = self.ttl.map(|ttl| used + ttl);
        self.forget(slot);
        DueTimes::of(
            event.map(Timestamp::as_micros),
            processing.map(nanos),
            expiry.map(Timestamp::as_micros),
        )
    }
}

/// Converts a time of the monotonic clock for storage on disk.
pub(crate) fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
