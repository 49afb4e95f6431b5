//! The side of an outbox that only the runtime and the test kit use.

use std::time::Duration;

use super::{Outbox, Slot};
use crate::{Chunk, Marker};

/// The methods of an [`Outbox`] for the runtime, which empties it. Processors do not use them.
pub trait OutboxRuntime {
    /// Takes the requested deadline.
    fn take_wake_at(&mut self) -> Option<Duration>;

    /// Returns true if there is nothing to send.
    fn is_empty(&self) -> bool;

    /// Adds lanes until there are `lanes`. Pending markers of the first lane are copied to the new
    /// ones.
    fn grow(&mut self, lanes: usize);

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

    /// Removes the markers of all lanes for which `keep` returns false.
    fn retain_markers(&mut self, keep: &mut dyn FnMut(&Marker) -> bool);

    /// Sets the maximum number of records per lane; zero refuses all.
    fn set_budget(&mut self, records: usize);
}

impl OutboxRuntime for Outbox {
    fn take_wake_at(&mut self) -> Option<Duration> {
        self.wake_at.take()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.slots
            .iter()
            .all(|slot| slot.building.is_empty() && slot.markers.is_empty())
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

    fn retain_markers(&mut self, keep: &mut dyn FnMut(&Marker) -> bool) {
        for slot in &mut self.slots {
            slot.markers.retain(&mut *keep);
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
