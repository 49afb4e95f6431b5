//! The division of a job's records into micro-batches.
//!
//! All sources of a job in this process share a [`BatchClock`]. Micro-batch *n* ends *n* + 1
//! lengths after the clock's origin. The marker of its end also ends all earlier ones, so a source
//! that was busy or blocked sends one marker for several.
//!
//! The processes of a cluster count from the same origin, 1970. So their micro-batches have the
//! same numbers at the same time. A difference of their clocks delays results by as much.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Clock, Epoch, Marker, MicroBatch, MicroBatchTime, Timestamp, Watermark};

use crate::source_log::SourceInstance;
use crate::{MicroBatchConfig, SourceBatchEnd, SourceLog};

/// The clock of a job's micro-batches.
#[derive(Debug)]
pub(crate) struct BatchClock {
    config: MicroBatchConfig,
    /// The creation time of the clock.
    start: Duration,
    /// The time from the origin to `start`.
    before: Duration,
    counts_from_1970: bool,
}

impl BatchClock {
    /// Creates the clock of a job in one process. Its origin is the present.
    pub(crate) fn from_now(config: MicroBatchConfig, clock: &Clock) -> Self {
        BatchClock {
            config,
            start: clock.now(),
            before: Duration::ZERO,
            counts_from_1970: false,
        }
    }

    /// Creates the clock of a part of a job. Its origin is 1970.
    pub(crate) fn by_wall_clock(config: MicroBatchConfig, clock: &Clock) -> Self {
        BatchClock {
            config,
            start: clock.now(),
            before: clock.wall().since(Timestamp::from_micros(0)),
            counts_from_1970: true,
        }
    }

    /// Returns the relation of the numbers to the time of day.
    pub(crate) fn time(&self) -> MicroBatchTime {
        match self.counts_from_1970 {
            true => MicroBatchTime::From1970(self.config.epoch),
            false => MicroBatchTime::FromStart,
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
    /// The watermark and the idleness that the source has sent in the current micro-batch. They
    /// take effect at its end.
    time: SourceTime,
    /// The last watermark passed on.
    passed: Watermark,
    /// Present if the process may be restored alone.
    log: Option<LoggedSource>,
}

/// The event time of a source at the end of a micro-batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SourceTime {
    /// The watermark to pass on; [`Watermark::NONE`] without one.
    pub(crate) watermark: Watermark,
    pub(crate) is_idle: bool,
}

impl SourceTime {
    const UNCHANGED: SourceTime = SourceTime {
        watermark: Watermark::NONE,
        is_idle: false,
    };
}

/// A source whose micro-batches are logged.
#[derive(Debug)]
struct LoggedSource {
    log: Arc<SourceLog>,
    source: SourceInstance,
    /// The last epoch that the source has ended.
    after: Epoch,
    /// The micro-batches to repeat; `None` until they are known.
    repeats: Option<VecDeque<SourceBatchEnd>>,
}

impl SourceBatches {
    /// Creates the micro-batches of a source that has written `records` records before.
    pub(crate) fn new(clock: Arc<BatchClock>, records: u64) -> Self {
        SourceBatches {
            clock,
            current: MicroBatch(0),
            at_clock: MicroBatch(0),
            records_before: records,
            is_new: true,
            time: SourceTime::UNCHANGED,
            passed: Watermark::NONE,
            log: None,
        }
    }

    /// Lets the source log its micro-batches, and repeat those of its predecessor.
    pub(crate) fn logged(mut self, log: Arc<SourceLog>, source: SourceInstance) -> Self {
        self.log = Some(LoggedSource {
            after: log.from(),
            repeats: None,
            log,
            source,
        });
        self
    }

    /// Returns true if the source waits for the micro-batches that it must repeat.
    pub(crate) fn is_waiting(&mut self) -> bool {
        let Some(LoggedSource {
            log,
            source,
            repeats,
            ..
        }) = &mut self.log
        else {
            return false;
        };
        if repeats.is_none() {
            *repeats = log.ends_to_repeat(*source);
        }
        repeats.is_none()
    }

    /// Returns true if the source must repeat micro-batches before it goes on.
    pub(crate) fn is_repeating(&self) -> bool {
        let repeats = self.log.as_ref().map(|log| &log.repeats);
        repeats.is_some_and(|it| it.as_ref().is_none_or(|ends| !ends.is_empty()))
    }

    /// Returns the micro-batch to repeat next.
    fn repeated(&self) -> Option<SourceBatchEnd> {
        let repeats = self.log.as_ref()?.repeats.as_ref()?;
        repeats.front().copied()
    }

    /// Notes the end of an epoch.
    pub(crate) fn end_epoch(&mut self, epoch: Epoch) {
        if let Some(logged) = &mut self.log {
            logged.after = epoch;
        }
    }

    /// Starts a slice. The time of a micro-batch is as exact as slices are short.
    pub(crate) fn begin_slice(&mut self, now: Duration) {
        self.at_clock = self.clock.at(now);
    }

    /// Returns the latest micro-batch that must end before the source is called, if any; `records`
    /// is the number of records written so far.
    pub(crate) fn due(&self, records: u64) -> Option<MicroBatch> {
        if self.is_repeating() {
            let end = self.repeated()?;
            return (records - self.records_before >= end.records).then_some(end.batch);
        }
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

    /// Handles a watermark or an idle marker of the source. Returns false for other markers.
    pub(crate) fn hold(&mut self, marker: &Marker) -> bool {
        match marker {
            Marker::Watermark(watermark) => {
                self.time = SourceTime {
                    watermark: self.time.watermark.max(*watermark),
                    is_idle: false,
                };
            }
            Marker::Idle => self.time.is_idle = true,
            _ => return false,
        }
        true
    }

    /// Returns the event time to pass on now.
    pub(crate) fn take_time(&mut self) -> SourceTime {
        let mut time = std::mem::replace(&mut self.time, SourceTime::UNCHANGED);
        if time.watermark <= self.passed {
            time.watermark = Watermark::NONE;
        }
        self.passed = self.passed.max(time.watermark);
        time
    }

    /// Ends the current micro-batch as `batch`. Returns the event time to pass on before its end.
    pub(crate) fn end(&mut self, batch: MicroBatch, records: u64) -> SourceTime {
        let repeated = self.log.as_mut().and_then(|log| log.repeats.as_mut());
        let repeated = repeated.and_then(VecDeque::pop_front);
        if let Some(SourceBatchEnd {
            watermark, is_idle, ..
        }) = repeated
        {
            // A later watermark of the source is passed on when it has caught up.
            let held = std::mem::replace(&mut self.time, SourceTime { watermark, is_idle });
            let time = self.take_time();
            self.time.watermark = held.watermark;
            self.log_end(batch, records, time);
            return time;
        }
        let time = self.take_time();
        self.log_end(batch, records, time);
        time
    }

    fn log_end(&mut self, batch: MicroBatch, records: u64, time: SourceTime) {
        if let Some(logged) = &self.log {
            let end = SourceBatchEnd {
                source: logged.source,
                after: logged.after,
                batch,
                records: records - self.records_before,
                watermark: time.watermark,
                is_idle: time.is_idle,
            };
            logged.log.add(end);
        }
        self.current = batch.next();
        self.records_before = records;
        self.is_new = true;
    }

    /// Notes a call of the source. Returns the number of records that it may write to each of its
    /// `outputs`, at most `most`.
    pub(crate) fn begin_call(&mut self, records: u64, outputs: usize, most: usize) -> usize {
        self.is_new = false;
        let limit = match self.repeated() {
            Some(end) => Some(end.records),
            None => self.clock.config.records.map(NonZeroU64::get),
        };
        let Some(limit) = limit else {
            return most;
        };
        let left = limit.saturating_sub(records - self.records_before);
        match usize::try_from(left.div_ceil(outputs.max(1) as u64)) {
            // The end is due before the next call.
            Ok(left) if left > 0 => left.min(most),
            _ => most,
        }
    }

    /// Returns the time at which the current micro-batch ends; `None` if it ends after a number of
    /// records.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        (!self.is_repeating()).then(|| self.clock.end_of(self.current))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SourceLogReader;

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
            counts_from_1970: true,
        }
    }

    fn source(records: Option<u64>) -> SourceBatches {
        SourceBatches::new(Arc::new(clock(records, Duration::ZERO)), 0)
    }

    #[test]
    fn a_micro_batch_ends_at_its_time_and_one_marker_ends_those_that_were_missed() {
        let mut source = source(None);
        source.begin_slice(at(12));
        assert_eq!(source.due(7), Some(MicroBatch(1)));
        source.end(MicroBatch(1), 7);
        assert_eq!(source.due(7), None);
        assert_eq!(source.deadline(), Some(at(15)));
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
        assert_eq!(source.deadline(), Some(at(10)), "its own micro-batch is 1");
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
    fn a_restored_source_ends_the_same_micro_batches_after_the_same_records() {
        let log = Arc::new(SourceLog::new(Some(Epoch(3)), true));
        let mut reader = SourceLogReader::new(Arc::clone(&log));
        let mut source = source(None).logged(Arc::clone(&log), (4, 0));
        source.begin_slice(at(500));
        assert!(source.is_waiting() && source.is_repeating());
        assert_eq!((source.due(0), source.deadline()), (None, None));
        let mut ends = Vec::new();
        for (batch, records) in [(2, 10), (3, 0)] {
            let end = SourceBatchEnd {
                source: (4, 0),
                after: Epoch(3),
                batch: MicroBatch(batch),
                records,
                watermark: Watermark(Timestamp::from_secs(batch as i64)),
                is_idle: batch == 3,
            };
            end.put(&mut ends);
        }
        reader.report(&ends).unwrap();
        log.open();
        assert!(!source.is_waiting());
        assert_eq!(source.due(7), None);
        assert_eq!(source.begin_call(7, 1, 8), 3);
        assert_eq!(source.due(10), Some(MicroBatch(2)));
        let ahead = Watermark(Timestamp::from_secs(9));
        assert!(source.hold(&Marker::Watermark(ahead)));
        let time = source.end(MicroBatch(2), 10);
        let second = |second| Watermark(Timestamp::from_secs(second));
        assert_eq!((time.watermark, time.is_idle), (second(2), false));
        assert_eq!(source.due(10), Some(MicroBatch(3)));
        let time = source.end(MicroBatch(3), 10);
        assert_eq!((time.watermark, time.is_idle), (second(3), true));
        assert_eq!(source.take_time().watermark, ahead);
        assert!(!source.is_repeating());
        assert_eq!(source.due(10), Some(MicroBatch(99)), "the clock goes on");
        let mut again = Vec::new();
        reader.take_new(&mut again);
        assert_eq!(again, ends);
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
