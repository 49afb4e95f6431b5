//! The work that workers report at the end of groups.
//!
//! Reports contain totals since the start of the attempt. So a lost or repeated report does no
//! harm, and the leader takes the greatest of each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::placement::RangeId;

/// The work of a task, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TaskFigures {
    /// The number of records that were read.
    pub records_in: u64,
    /// The number of records that were emitted.
    pub records_out: u64,
    /// The bytes of the emitted records.
    pub bytes_out: u64,
    /// The time in which tasks ran.
    pub busy_nanos: u64,
}

impl TaskFigures {
    /// Returns the time in which tasks ran.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_nanos)
    }

    fn combine(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        TaskFigures {
            records_in: with(self.records_in, other.records_in),
            records_out: with(self.records_out, other.records_out),
            bytes_out: with(self.bytes_out, other.bytes_out),
            busy_nanos: with(self.busy_nanos, other.busy_nanos),
        }
    }

    /// Returns the sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    /// Returns the work since earlier totals.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.combine(earlier, u64::saturating_sub)
    }
}

/// Totals of a range since it is at its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RangeFigures {
    /// The range.
    pub at: RangeId,
    /// The number of tasks that were run.
    pub tasks: u64,
    /// Their work.
    pub work: TaskFigures,
}

impl RangeFigures {
    /// Creates totals of zero.
    pub(super) fn zero(at: RangeId) -> Self {
        RangeFigures {
            at,
            tasks: 0,
            work: TaskFigures::default(),
        }
    }

    /// Adds a task.
    pub(super) fn add_task(&mut self, work: TaskFigures) {
        self.tasks += 1;
        self.work = self.work.plus(work);
    }
}

/// Totals of a worker since the start of its attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupFigures {
    /// The number of tasks that were run.
    pub tasks: u64,
    /// The number of tasks that were run again for a lost worker.
    pub tasks_rerun: u64,
    /// The number of kept outputs that were sent again, each of one producer, micro-batch and
    /// consumer.
    pub blocks_reused: u64,
    /// The number of dropped duplicates, each of one producer, micro-batch and consumer.
    pub duplicates_dropped: u64,
    /// The time in which the worker had no planned task left.
    pub starved_nanos: u64,
    /// The work of all tasks.
    pub work: TaskFigures,
}

impl GroupFigures {
    fn combine(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        GroupFigures {
            tasks: with(self.tasks, other.tasks),
            tasks_rerun: with(self.tasks_rerun, other.tasks_rerun),
            blocks_reused: with(self.blocks_reused, other.blocks_reused),
            duplicates_dropped: with(self.duplicates_dropped, other.duplicates_dropped),
            starved_nanos: with(self.starved_nanos, other.starved_nanos),
            work: self.work.combine(other.work, with),
        }
    }

    /// Returns the sum of the totals of several workers.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    /// Returns the newer totals of two reports of one worker, which may have overtaken each other.
    pub(super) fn newest(self, other: Self) -> Self {
        self.combine(other, u64::max)
    }
}
