//! The records of one poll.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use ardea_core::{Rows, Timestamp, Watermark};

use crate::source_watermarks::{SourceWatermarks, TimeOutput};

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
    pub(super) rows: &'a mut Rows<T>,
    /// The number of rows that may be there.
    pub(super) limit: usize,
    /// Records beyond the limit.
    pub(super) overflow: &'a mut VecDeque<(T, Timestamp)>,
    /// The watermarks of the instance and the index of the partition, if the source has event
    /// times.
    pub(super) watermarks: Option<(&'a mut SourceWatermarks, usize)>,
    /// The watermark and idleness to emit after the records.
    pub(super) time: TimeOutput,
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
            true => self.limit.saturating_sub(self.rows.len()),
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
        if let Some((watermarks, partition)) = &mut self.watermarks {
            watermarks.record(*partition, time);
        }
        match self.has_room() {
            true => self.rows.push(record, time),
            false => self.overflow.push_back((record, time)),
        }
    }

    /// Adds records without event time by `add`, as many as have [room](Self::room) at most.
    #[inline]
    pub(crate) fn add_rows(&mut self, add: impl FnOnce(&mut Rows<T>)) {
        let before = self.rows.len();
        add(self.rows);
        self.count += self.rows.len() - before;
    }

    /// Emits a watermark after the records of this batch, for a [`SourceReader`](crate::SourceReader).
    /// There must be [room](Self::room) for all records.
    pub fn watermark(&mut self, watermark: Watermark) {
        self.time.watermark = Some(watermark);
    }
}

impl<T> fmt::Debug for SourceBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SourceBatch({} records)", self.count)
    }
}
