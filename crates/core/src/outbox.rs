//! What a processor writes to.

use std::collections::VecDeque;
use std::time::Duration;

use crate::error::{Error, ErrorCode};
use crate::{Chunk, Epoch, Ordinal, Result, Rows, Timestamp, Watermark};

/// What travels between records on an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marker {
    /// No older event time follows.
    Watermark(Watermark),
    /// The source is silent: this edge is not to hold back the watermark of others until it speaks again. To be said again now and then as long as it is, since
    /// it is passed over [where others have just woken](crate::WatermarkMerge).
    Idle,
    /// This epoch's records end here.
    EpochEnd(Epoch),
    /// How long it is on its way is how long records are: a source said this at that time of day, and it overtakes nothing.
    Latency(Timestamp),
    /// Nothing follows.
    Done,
}

/// One output of a processor: a chunk being filled, and the markers behind it.
#[derive(Debug, Default)]
struct Slot {
    building: Chunk,
    markers: VecDeque<Marker>,
    /// Behind the markers: what is said of those who write to it from elsewhere.
    news: Option<FarNews>,
}

/// What the receiving end of an edge between processes says of those who send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FarNews {
    /// Nobody routes to this lane at the moment, see [`Outbox::leave`].
    Left,
    /// They begin anew, see [`Outbox::begin_anew`].
    Anew,
}

/// The bounded outputs of a processor, one lane an output ordinal.
///
/// A processor asks [`Lane::room`] and writes no more than that. When a lane is full it returns; it is called again when
/// the runtime has moved the lane's content on. Nothing blocks and nothing is dropped.
#[derive(Debug)]
pub struct Outbox {
    slots: Vec<Slot>,
    chunk_records: usize,
    budget: usize,
    wake_at: Option<Duration>,
    misrouted: u64,
}

impl Outbox {
    /// An outbox of `lanes` lanes, each for up to `chunk_records` records at a time.
    pub fn new(lanes: usize, chunk_records: usize) -> Self {
        Outbox {
            slots: (0..lanes).map(|_| Slot::default()).collect(),
            chunk_records: chunk_records.max(1),
            budget: chunk_records.max(1),
            wake_at: None,
            misrouted: 0,
        }
    }

    /// The number of lanes.
    pub fn lanes(&self) -> usize {
        self.slots.len()
    }

    /// The lane with this ordinal, for records of type `T`.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchOutput`] if the vertex has no such output; [`ErrorCode::TypeMismatch`] if the lane still holds
    /// records of another type.
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

    /// Whether a processor may write at least one record to this lane.
    pub fn has_room(&self, ordinal: Ordinal) -> bool {
        self.slots
            .get(ordinal.index())
            .is_some_and(|s| s.markers.is_empty() && s.building.len() < self.budget)
    }

    /// Offers a whole chunk; takes it only if the lane is empty, and says whether it did.
    ///
    /// The chunk given back is an emptied one to use again, or the refused one.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchOutput`] if the vertex has no such output.
    pub fn offer_chunk(&mut self, ordinal: Ordinal, chunk: &mut Chunk) -> Result<bool> {
        let budget = self.budget;
        let slot = self.slot(ordinal)?;
        let free = slot.markers.is_empty() && slot.building.is_empty() && budget > 0;
        if free {
            std::mem::swap(&mut slot.building, chunk);
        }
        Ok(free)
    }

    /// Writes a watermark behind the records of every lane. Always taken; the lanes are then full until moved on.
    pub fn watermark(&mut self, watermark: Watermark) {
        self.marker(Marker::Watermark(watermark));
    }

    /// Writes a marker behind the records of every lane. Always taken; the lanes are then full until moved on.
    pub fn marker(&mut self, marker: Marker) {
        for slot in &mut self.slots {
            slot.markers.push_back(marker);
        }
    }

    /// For the receiving end of an edge between processes: says, behind all that is on this lane, that no producer over there routes
    /// to this lane's consumer at the moment. A consumer that is to end does not wait for them then; for any other it means nothing.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchOutput`] if there is no such output.
    pub fn leave(&mut self, ordinal: Ordinal) -> Result<()> {
        self.slot(ordinal)?.news.get_or_insert(FarNews::Left);
        Ok(())
    }

    /// For the receiving end of an edge between processes: says, behind all that is on the lanes, that the other end begins anew, as it
    /// was started again or the connection was cut. What it said before of those who route, of those who come and of its end is void.
    pub fn begin_anew(&mut self) {
        for slot in &mut self.slots {
            slot.news = Some(FarNews::Anew);
        }
    }

    /// For the receiving end of an edge between processes: so many records came for an output that there is not, by routes of before this
    /// process was started. They have been dropped.
    pub fn count_misrouted(&mut self, records: usize) {
        self.misrouted += records as u64;
    }

    /// For the runtime: how many records have been dropped so since the last call.
    pub fn take_misrouted(&mut self) -> u64 {
        std::mem::take(&mut self.misrouted)
    }

    /// Asks to be called again no later than at `deadline`, on the instance's monotonic clock, even without input.
    ///
    /// Of several calls in one step the earliest counts; it holds for the next wait only.
    pub fn wake_at(&mut self, deadline: Duration) {
        self.wake_at = Some(
            self.wake_at
                .map_or(deadline, |earlier| earlier.min(deadline)),
        );
    }

    /// For the runtime: the deadline that was asked for, once.
    pub fn take_wake_at(&mut self) -> Option<Duration> {
        self.wake_at.take()
    }

    /// For the runtime: whether nothing waits to be moved on.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots
            .iter()
            .all(|slot| slot.building.is_empty() && slot.markers.is_empty() && slot.news.is_none())
    }

    /// For the runtime: makes lanes, until there are so many. Markers that wait on the first one wait on the new ones as well.
    pub fn grow(&mut self, lanes: usize) {
        let markers = self.slots.first().map(|slot| slot.markers.clone());
        while self.slots.len() < lanes {
            self.slots.push(Slot {
                markers: markers.clone().unwrap_or_default(),
                ..Slot::default()
            });
        }
    }

    /// For the runtime: what is said, behind records and markers that have been taken, of those who write to a lane from elsewhere.
    #[inline]
    pub fn peek_news(&self, lane: usize) -> Option<FarNews> {
        self.slots[lane].news
    }

    /// For the runtime: that has been passed on.
    pub fn take_news(&mut self, lane: usize) -> Option<FarNews> {
        self.slots[lane].news.take()
    }

    /// For the runtime: takes the records of a lane, if there are any, leaving `spare` to be filled next.
    pub fn take_chunk(&mut self, lane: usize, spare: impl FnOnce() -> Chunk) -> Option<Chunk> {
        let slot = &mut self.slots[lane];
        (!slot.building.is_empty()).then(|| std::mem::replace(&mut slot.building, spare()))
    }

    /// For the runtime: whether a lane holds records.
    #[inline]
    pub fn has_records(&self, lane: usize) -> bool {
        !self.slots[lane].building.is_empty()
    }

    /// For the runtime: the lane's chunk, to be emptied in place.
    pub fn chunk_mut(&mut self, lane: usize) -> &mut Chunk {
        &mut self.slots[lane].building
    }

    /// For the runtime: takes the next marker of a lane whose records have been taken.
    pub fn take_marker(&mut self, lane: usize) -> Option<Marker> {
        let slot = &mut self.slots[lane];
        if slot.building.is_empty() {
            slot.markers.pop_front()
        } else {
            None
        }
    }

    /// For the runtime: the next marker of a lane whose records have been taken, left in place.
    pub fn peek_marker(&self, lane: usize) -> Option<Marker> {
        let slot = &self.slots[lane];
        if slot.building.is_empty() {
            slot.markers.front().copied()
        } else {
            None
        }
    }

    /// For the runtime and the test kit: how many records each lane may hold from now on; zero refuses all.
    pub fn set_budget(&mut self, records: usize) {
        self.budget = records;
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
    /// How many records may be written now.
    #[inline]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.rows.len())
    }

    /// Whether no record may be written now.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.limit
    }

    /// Writes a record. The caller has asked [`room`](Lane::room); a record beyond it is kept all the same, but the test
    /// kit reports the processor that does so.
    #[inline]
    pub fn push(&mut self, value: T, time: Timestamp) {
        self.rows.push(value, time);
    }

    /// The batch under construction, to write to in bulk; at most [`room`](Lane::room) records may be added.
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
    fn a_lane_that_was_left_is_not_empty_until_that_is_passed_on() {
        let mut outbox = Outbox::new(1, 4);
        outbox.grow(2);
        outbox.leave(Ordinal(1)).unwrap();
        assert!(!outbox.is_empty());
        assert_eq!(
            (outbox.peek_news(0), outbox.peek_news(1)),
            (None, Some(FarNews::Left))
        );
        assert_eq!(outbox.take_news(1), Some(FarNews::Left));
        assert!(outbox.is_empty());
        assert!(outbox.leave(Ordinal(2)).is_err());
        outbox.begin_anew();
        outbox.leave(Ordinal(0)).unwrap();
        assert_eq!(
            outbox.take_news(0),
            Some(FarNews::Anew),
            "whoever begins anew has left"
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
