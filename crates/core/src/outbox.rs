//! The output side of a processor.

mod runtime;

use std::collections::VecDeque;
use std::time::Duration;

use crate::error::{Error, ErrorCode};
use crate::{Chunk, Epoch, MicroBatch, Ordinal, Result, Rows, Timestamp, Watermark};

pub use runtime::OutboxRuntime;

/// A control item between the records of an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marker {
    /// No record with an older event time follows.
    Watermark(Watermark),
    /// The producer is idle: receivers ignore it when they merge watermarks, until it sends again.
    /// An idle producer repeats the marker periodically, since a receiver drops it if another input
    /// of the same group [has just become active](crate::WatermarkMerge).
    Idle,
    /// The end of the records of this epoch.
    Barrier(Epoch),
    /// The end of this micro-batch and of all earlier ones. No snapshot is taken. Sent in
    /// micro-batch mode only.
    BatchEnd(MicroBatch),
    /// A latency marker with the wall-clock time at which a source emitted it. It is queued like a
    /// record.
    Latency(Timestamp),
    /// No item follows.
    Done,
}

/// One output of a processor: the chunk being filled, and the markers after it.
#[derive(Debug, Default)]
struct Slot {
    building: Chunk,
    markers: VecDeque<Marker>,
}

/// The bounded outputs of a processor: one lane per output ordinal.
///
/// A processor checks [`Lane::room`] and writes at most that many records. It returns when a lane
/// is full, and is called again when the runtime has sent the lane's content. Nothing blocks and
/// nothing is dropped.
#[derive(Debug)]
pub struct Outbox {
    slots: Vec<Slot>,
    chunk_records: usize,
    budget: usize,
    wake_at: Option<Duration>,
}

impl Outbox {
    /// Creates an outbox of `lanes` lanes for up to `chunk_records` records each.
    pub fn new(lanes: usize, chunk_records: usize) -> Self {
        Outbox {
            slots: (0..lanes).map(|_| Slot::default()).collect(),
            chunk_records: chunk_records.max(1),
            budget: chunk_records.max(1),
            wake_at: None,
        }
    }

    /// Returns the number of lanes.
    pub fn lanes(&self) -> usize {
        self.slots.len()
    }

    /// Returns the lane with this ordinal, for records of type `T`.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchOutput`] if the vertex has no such output; [`ErrorCode::TypeMismatch`]
    /// if the lane still holds records of another type.
    #[inline]
    pub fn lane<T: Send + 'static>(&mut self, ordinal: Ordinal) -> Result<Lane<'_, T>> {
        let chunk_records = self.chunk_records;
        let budget = self.budget;
        let slot = self.slot(ordinal)?;
        let closed = !slot.markers.is_empty();
        let rows = slot.building.rows_or_new::<T>(chunk_records)?;
        let limit = if closed { 0 } else { budget };
        Ok(Lane { rows, limit })
    }

    /// Returns true if a processor may write at least one record to this lane.
    pub fn has_room(&self, ordinal: Ordinal) -> bool {
        self.slots
            .get(ordinal.index())
            .is_some_and(|s| s.markers.is_empty() && s.building.len() < self.budget)
    }

    /// Returns true if [`offer_chunk`](Self::offer_chunk) would add a chunk to this lane.
    pub fn accepts_chunk(&self, ordinal: Ordinal) -> bool {
        let slot = self.slots.get(ordinal.index());
        self.budget > 0
            && slot.is_some_and(|slot| slot.markers.is_empty() && slot.building.is_empty())
    }

    /// Adds a whole chunk if the lane is empty, and returns true if it was added.
    ///
    /// Afterwards `chunk` is an emptied one for reuse, or the refused one.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchOutput`] if the vertex has no such output.
    pub fn offer_chunk(&mut self, ordinal: Ordinal, chunk: &mut Chunk) -> Result<bool> {
        let accepts = self.accepts_chunk(ordinal);
        let slot = self.slot(ordinal)?;
        if accepts {
            std::mem::swap(&mut slot.building, chunk);
        }
        Ok(accepts)
    }

    /// Appends a watermark to every lane. Never refused; the lanes are then full until the runtime
    /// has sent their content.
    pub fn watermark(&mut self, watermark: Watermark) {
        self.marker(Marker::Watermark(watermark));
    }

    /// Appends a marker to every lane. Never refused; the lanes are then full until the runtime has
    /// sent their content.
    pub fn marker(&mut self, marker: Marker) {
        for slot in &mut self.slots {
            slot.markers.push_back(marker);
        }
    }

    /// Requests a call no later than `deadline`, on the instance's monotonic clock, even without
    /// input.
    ///
    /// Of several requests in one step the earliest counts. A request holds for the next wait only.
    pub fn wake_at(&mut self, deadline: Duration) {
        self.wake_at = Some(
            self.wake_at
                .map_or(deadline, |earlier| earlier.min(deadline)),
        );
    }

    fn slot(&mut self, ordinal: Ordinal) -> Result<&mut Slot> {
        let lanes = self.slots.len();
        self.slots.get_mut(ordinal.index()).ok_or_else(|| {
            Error::new(
                ErrorCode::NoSuchOutput,
                format!("a processor wrote to output {} of {lanes}", ordinal.index()),
            )
            .hint("give the vertex an edge for every output its processor writes to")
        })
    }
}

/// One output, for records of type `T`.
#[derive(Debug)]
pub struct Lane<'a, T> {
    rows: &'a mut Rows<T>,
    limit: usize,
}

impl<T> Lane<'_, T> {
    /// Returns the number of records that may be written now.
    #[inline]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.rows.len())
    }

    /// Returns true if no record may be written now.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.limit
    }

    /// Writes a record. The caller must have checked [`room`](Lane::room). A record without room is
    /// not lost, but the test kit reports the processor.
    #[inline]
    pub fn push(&mut self, value: T, time: Timestamp) {
        self.rows.push(value, time);
    }

    /// Returns the batch under construction for bulk writes; at most [`room`](Lane::room) records
    /// may be added.
    #[inline]
    pub fn rows(&mut self) -> &mut Rows<T> {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_closes_behind_a_marker_until_it_is_moved_on() {
        let mut outbox = Outbox::new(1, 4);
        outbox
            .lane(Ordinal::FIRST)
            .unwrap()
            .push(1u8, Timestamp::MIN);
        outbox.watermark(Watermark::END);
        assert_eq!(outbox.lane::<u8>(Ordinal::FIRST).unwrap().room(), 0);
        assert_eq!(outbox.take_marker(0), None, "records go first");
        assert_eq!(outbox.take_chunk(0, Chunk::default).unwrap().len(), 1);
        assert_eq!(
            outbox.take_marker(0),
            Some(Marker::Watermark(Watermark::END))
        );
        assert_eq!(outbox.lane::<u8>(Ordinal::FIRST).unwrap().room(), 4);
    }

    #[test]
    fn writing_to_an_output_that_is_not_there_is_an_error() {
        let mut outbox = Outbox::new(1, 4);
        assert_eq!(
            outbox.lane::<u8>(Ordinal(1)).unwrap_err().code(),
            ErrorCode::NoSuchOutput
        );
    }

    #[test]
    fn the_earliest_deadline_counts_once() {
        let mut outbox = Outbox::new(0, 1);
        outbox.wake_at(Duration::from_secs(2));
        outbox.wake_at(Duration::from_secs(1));
        assert_eq!(outbox.take_wake_at(), Some(Duration::from_secs(1)));
        assert_eq!(outbox.take_wake_at(), None);
    }
}
