//! The division of a job's records into micro-batches.
//!
//! All sources of a job in this process share a [`BatchClock`]. Micro-batch *n* ends *n* + 1
//! lengths after the clock's origin. The marker of its end also ends all earlier ones, so a source
//! that was busy or blocked sends one marker for several.
//!
//! The processes of a cluster count from the same origin, 1970. So their micro-batches have the
//! same numbers at the same time. A difference of their clocks delays results by as much.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Clock, MicroBatch, Timestamp};

use crate::MicroBatchConfig;

/// The clock of a job's micro-batches.
#[derive(Debug)]
pub(crate) struct BatchClock {
    config: MicroBatchConfig,
    /// The creation time of the clock.
    start: Duration,
    /// The time from the origin to `start`.
    before: Duration,
}

impl BatchClock {
    /// Creates the clock of a job in one process. Its origin is the present.
    pub(crate) fn from_now(config: MicroBatchConfig, clock: &Clock) -> Self {
        BatchClock {
            config,
            start: clock.now(),
            before: Duration::ZERO,
        }
    }

    /// Creates the clock of a part of a job. Its origin is 1970.
    pub(crate) fn by_wall_clock(config: MicroBatchConfig, clock: &Clock) -> Self {
        BatchClock {
            config,
            start: clock.now(),
            before: clock.wall().since(Timestamp::from_micros(0)),
        }
    }

    /// Returns the micro-batch that is in progress at `now`.
    fn at(&self, now: Duration) -> MicroBatch {
        let passed = (self.before + now.saturating_sub(self.start)).as_nanos();
        let batch = passed / self.config.epoch.as_nanos().max(1);
        MicroBatch(u64::try_from(batch).unwrap_or(u64::MAX))
    }

    /// Returns the time at which a micro-batch ends.
    fn end_of(&self, batch: MicroBatch) -> Duration {
        let nanos = self.config.epoch.as_nanos() * (u128::from(batch.0) + 1);
        let end = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.start.saturating_add(end.saturating_sub(self.before))
    }
}

/// The micro-batches of one source.
#[derive(Debug)]
pub(crate) struct SourceBatches {
    clock: Arc<BatchClock>,
    /// The micro-batch that the source fills.
    current: MicroBatch,
    /// The micro-batch of the clock at the start of the slice.
    at_clock: MicroBatch,
    /// The number of records that the source had written before the current micro-batch.
    records_before: u64,
    /// True if the source was not called since the last end.
    is_new: bool,
}

impl SourceBatches {
    pub(crate) fn new(clock: Arc<BatchClock>) -> Self {
        SourceBatches {
            clock,
            current: MicroBatch(0),
            at_clock: MicroBatch(0),
            records_before: 0,
            is_new: true,
        }
    }

    /// Starts a slice. The time of a micro-batch is as exact as slices are short.
    pub(crate) fn begin_slice(&mut self, now: Duration) {
        self.at_clock = self.clock.at(now);
    }

    /// Returns the latest micro-batch that must end before the source is called, if any; `records`
    /// is the number of records written so far.
    pub(crate) fn due(&self, records: u64) -> Option<MicroBatch> {
        if self.at_clock > self.current {
            return Some(MicroBatch(self.at_clock.0 - 1));
        }
        let limit = self.clock.config.records?;
        (records - self.records_before >= limit.get()).then_some(self.current)
    }

    /// Returns the current micro-batch if it must end before a barrier.
    pub(crate) fn before_barrier(&self) -> Option<MicroBatch> {
        (!self.is_new).then_some(self.current)
    }

    /// Ends the current micro-batch as `batch`.
    pub(crate) fn end(&mut self, batch: MicroBatch, records: u64) {
        self.current = batch.next();
        self.records_before = records;
        self.is_new = true;
    }

    /// Notes a call of the source. Returns the number of records that it may write to each of its
    /// `outputs`, at most `most`.
    pub(crate) fn begin_call(&mut self, records: u64, outputs: usize, most: usize) -> usize {
        self.is_new = false;
        let Some(limit) = self.clock.config.records else {
            return most;
        };
        let left = limit.get().saturating_sub(records - self.records_before);
        match usize::try_from(left.div_ceil(outputs.max(1) as u64)) {
            // The end is due before the next call.
            Ok(left) if left > 0 => left.min(most),
            _ => most,
        }
    }

    /// Returns the time at which the current micro-batch ends.
    pub(crate) fn deadline(&self) -> Duration {
        self.clock.end_of(self.current)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    const START: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Duration {
        START + Duration::from_millis(millis)
    }

    fn clock(records: Option<u64>, before: Duration) -> BatchClock {
        let config = MicroBatchConfig {
            epoch: Duration::from_millis(5),
            records: records.and_then(NonZeroU64::new),
            ..MicroBatchConfig::default()
        };
        BatchClock {
            config,
            start: START,
            before,
        }
    }

    fn source(records: Option<u64>) -> SourceBatches {
        SourceBatches::new(Arc::new(clock(records, Duration::ZERO)))
    }

    #[test]
    fn a_micro_batch_ends_at_its_time_and_one_marker_ends_those_that_were_missed() {
        let mut source = source(None);
        source.begin_slice(at(12));
        assert_eq!(source.due(7), Some(MicroBatch(1)));
        source.end(MicroBatch(1), 7);
        assert_eq!(source.due(7), None);
        assert_eq!(source.deadline(), at(15));
        source.begin_slice(at(15));
        assert_eq!(source.due(7), Some(MicroBatch(2)));
    }

    #[test]
    fn a_micro_batch_ends_early_when_it_is_full() {
        let mut source = source(Some(10));
        assert_eq!(source.begin_call(0, 1, 8), 8);
        assert_eq!(source.begin_call(8, 1, 8), 2);
        assert_eq!(source.begin_call(4, 2, 8), 3);
        assert_eq!(source.due(9), None);
        assert_eq!(source.due(10), Some(MicroBatch(0)));
        source.end(MicroBatch(0), 10);
        assert_eq!(source.deadline(), at(10), "its own micro-batch is 1");
        source.begin_slice(at(6));
        assert_eq!(source.due(10), None);
        source.begin_slice(at(10));
        assert_eq!(source.due(10), Some(MicroBatch(1)));
    }

    #[test]
    fn processes_that_start_at_different_times_count_from_the_same_origin() {
        let late = clock(None, Duration::from_millis(1_003));
        assert_eq!(late.at(at(0)), MicroBatch(200));
        assert_eq!(late.end_of(MicroBatch(200)), at(2));
        assert_eq!(late.at(at(2)), MicroBatch(201));
        assert_eq!(late.end_of(MicroBatch(7)), at(0), "it is over");
    }

    #[test]
    fn a_barrier_ends_a_micro_batch_that_has_begun() {
        let mut source = source(None);
        assert_eq!(source.before_barrier(), None);
        source.begin_call(0, 1, 8);
        assert_eq!(source.before_barrier(), Some(MicroBatch(0)));
        source.end(MicroBatch(0), 3);
        assert_eq!(source.before_barrier(), None);
    }
}
