//! The records of one poll.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use ardea_core::{Lane, Timestamp};

use crate::source_watermarks::SourceWatermarks;

/// The time of the next `poll` of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollStatus {
    /// At once: more records may be there.
    Ready,
    /// Soon (after 10 ms by default): there are no records at the moment.
    Idle,
    /// After this time: there are no records at the moment.
    IdleFor(Duration),
    /// Never: the partition has ended.
    End,
}

impl PollStatus {
    /// Returns [`End`](PollStatus::End) if `is_at_end`, else [`Ready`](PollStatus::Ready).
    pub const fn end_if(is_at_end: bool) -> Self {
        match is_at_end {
            true => PollStatus::End,
            false => PollStatus::Ready,
        }
    }
}

/// The batch to which `poll` adds records.
pub struct SourceBatch<'a, T> {
    pub(super) lane: Lane<'a, T>,
    /// Records beyond the room of the lane.
    pub(super) overflow: &'a mut VecDeque<(T, Timestamp)>,
    /// The watermarks of the instance and the index of the partition, if the source has event
    /// times.
    pub(super) time: Option<(&'a mut SourceWatermarks, usize)>,
    pub(super) count: usize,
}

impl<T> SourceBatch<'_, T> {
    /// Returns true if another record can be emitted at once. Otherwise `poll` should return:
    /// further records are buffered.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Returns the number of records that can be emitted at once.
    #[inline]
    pub fn room(&self) -> usize {
        match self.overflow.is_empty() {
            true => self.lane.room(),
            false => 0,
        }
    }

    /// Adds a record without event time.
    #[inline]
    pub fn push(&mut self, record: T) {
        self.push_at(record, Timestamp::MIN);
    }

    /// Adds a record with its event time.
    #[inline]
    pub fn push_at(&mut self, record: T, time: Timestamp) {
        self.count += 1;
        if let Some((watermarks, partition)) = &mut self.time {
            watermarks.record(*partition, time);
        }
        match self.has_room() {
            true => self.lane.push(record, time),
            false => self.overflow.push_back((record, time)),
        }
    }
}

impl<T> fmt::Debug for SourceBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SourceBatch({} records)", self.count)
    }
}
