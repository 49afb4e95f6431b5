//! The side of an outbox that only the runtime and the test kit use.

use std::time::Duration;

use super::{Outbox, RemoteSignal, Slot};
use crate::{Chunk, Marker, Ordinal, Result};

/// The methods of an [`Outbox`] for the runtime: they empty it, and carry signals of edges between
/// processes. Processors do not use them.
pub trait OutboxRuntime {
    /// Signals, after the content of this lane, that no remote producer routes to the lane's
    /// consumer at the moment. A consumer that is stopping then does not wait for these producers;
    /// for others the signal has no effect.
    ///
    /// # Errors
    /// [`NoSuchOutput`](crate::ErrorCode::NoSuchOutput) if there is no such output.
    fn signal_producers_left(&mut self, ordinal: Ordinal) -> Result<()>;

    /// Signals, after the content of the lanes, that the sending end has restarted or the
    /// connection was cut. Earlier signals of the sending end, about leaving or expected producers
    /// and end of stream, are void.
    fn signal_restart(&mut self);

    /// Counts records that were dropped because their output does not exist. The sender used a
    /// routing older than the start of this process.
    fn count_misrouted(&mut self, records: usize);

    /// Returns the number of records counted by
    /// [`count_misrouted`](OutboxRuntime::count_misrouted) since the last call.
    fn take_misrouted(&mut self) -> u64;

    /// Takes the requested deadline.
    fn take_wake_at(&mut self) -> Option<Duration>;

    /// Returns true if there is nothing to send.
    fn is_empty(&self) -> bool;

    /// Adds lanes until there are `lanes`. Pending markers of the first lane are copied to the new
    /// ones.
    fn grow(&mut self, lanes: usize);

    /// Returns the pending signal about a lane's remote producers. It applies after all records
    /// and markers that were in the lane.
    fn peek_signal(&self, lane: usize) -> Option<RemoteSignal>;

    /// Takes the pending signal about a lane's remote producers.
    fn take_signal(&mut self, lane: usize) -> Option<RemoteSignal>;

    /// Takes the records of a lane, if there are any, and leaves `spare` to be filled next.
    fn take_chunk(&mut self, lane: usize, spare: impl FnOnce() -> Chunk) -> Option<Chunk>;

    /// Returns true if a lane holds records.
    fn has_records(&self, lane: usize) -> bool;

    /// Returns the lane's chunk, to be emptied in place.
    fn chunk_mut(&mut self, lane: usize) -> &mut Chunk;

    /// Takes the next marker of a lane whose records have been taken.
    fn take_marker(&mut self, lane: usize) -> Option<Marker>;

    /// Returns, without removing it, the next marker of a lane whose records have been taken.
    fn peek_marker(&self, lane: usize) -> Option<Marker>;

    /// Sets the maximum number of records per lane; zero refuses all.
    fn set_budget(&mut self, records: usize);
}

impl OutboxRuntime for Outbox {
    fn signal_producers_left(&mut self, ordinal: Ordinal) -> Result<()> {
        self.slot(ordinal)?
            .signal
            .get_or_insert(RemoteSignal::ProducersLeft);
        Ok(())
    }

    fn signal_restart(&mut self) {
        for slot in &mut self.slots {
            slot.signal = Some(RemoteSignal::Restarted);
        }
    }

    fn count_misrouted(&mut self, records: usize) {
        self.misrouted += records as u64;
    }

    fn take_misrouted(&mut self) -> u64 {
        std::mem::take(&mut self.misrouted)
    }

    fn take_wake_at(&mut self) -> Option<Duration> {
        self.wake_at.take()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| {
            slot.building.is_empty() && slot.markers.is_empty() && slot.signal.is_none()
        })
    }

    fn grow(&mut self, lanes: usize) {
        let markers = self.slots.first().map(|slot| slot.markers.clone());
        while self.slots.len() < lanes {
            self.slots.push(Slot {
                markers: markers.clone().unwrap_or_default(),
                ..Slot::default()
            });
        }
    }

    #[inline]
    fn peek_signal(&self, lane: usize) -> Option<RemoteSignal> {
        self.slots[lane].signal
    }

    fn take_signal(&mut self, lane: usize) -> Option<RemoteSignal> {
        self.slots[lane].signal.take()
    }

    fn take_chunk(&mut self, lane: usize, spare: impl FnOnce() -> Chunk) -> Option<Chunk> {
        let slot = &mut self.slots[lane];
        (!slot.building.is_empty()).then(|| std::mem::replace(&mut slot.building, spare()))
    }

    #[inline]
    fn has_records(&self, lane: usize) -> bool {
        !self.slots[lane].building.is_empty()
    }

    fn chunk_mut(&mut self, lane: usize) -> &mut Chunk {
        &mut self.slots[lane].building
    }

    fn take_marker(&mut self, lane: usize) -> Option<Marker> {
        let slot = &mut self.slots[lane];
        if slot.building.is_empty() {
            slot.markers.pop_front()
        } else {
            None
        }
    }

    fn peek_marker(&self, lane: usize) -> Option<Marker> {
        let slot = &self.slots[lane];
        if slot.building.is_empty() {
            slot.markers.front().copied()
        } else {
            None
        }
    }

    fn set_budget(&mut self, records: usize) {
        self.budget = records;
    }
}
