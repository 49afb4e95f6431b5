//! The watermark of a source that reads several partitions.

use std::time::Duration;

use ardea_core::{AheadBound, Clock, Timestamp, Watermark, WatermarkMerge, WatermarkPolicy};

/// Longest normal interval between calls of an instance. A longer one means that the instance was
/// stopped or blocked, and does not count as idle time.
pub(crate) const MAX_CALL_INTERVAL: Duration = Duration::from_secs(1);

/// Watermark output of the instance after a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TimeOutput {
    pub watermark: Option<Watermark>,
    pub is_idle: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Activity {
    /// More records are available.
    Behind,
    /// All available records have been read; contains the time when, on the instance's clock.
    AtEnd(Duration),
    /// The partition is idle: the watermark does not wait for it.
    Idle,
    /// The partition is fully read.
    Done,
}

#[derive(Debug)]
struct PartitionTime {
    highest: Timestamp,
    is_touched: bool,
    activity: Activity,
}

impl PartitionTime {
    fn new(highest: Timestamp) -> Self {
        PartitionTime {
            highest,
            // A restored event time takes part in the watermark at once.
            is_touched: highest.is_event_time(),
            activity: Activity::Behind,
        }
    }
}

/// The event times of the partitions of one instance. Each partition has a watermark, and the
/// minimum of those that are not idle is the watermark of the instance.
#[derive(Debug)]
pub(crate) struct SourceWatermarks {
    policy: WatermarkPolicy,
    partitions: Vec<PartitionTime>,
    merge: WatermarkMerge,
    /// Bound above which event times do not advance the watermark.
    bound: AheadBound,
    clock: Clock,
    sent: Watermark,
    /// Time of the last idle report.
    reported_idle: Option<Duration>,
    /// Time of the last call.
    called: Duration,
}

impl SourceWatermarks {
    /// Creates the watermark of an instance without partitions. `clock` limits event times.
    pub fn new(policy: WatermarkPolicy, clock: Clock) -> Self {
        SourceWatermarks {
            policy,
            partitions: Vec::new(),
            merge: WatermarkMerge::new(0),
            bound: AheadBound::new(policy.wanted_max_ahead(), Timestamp::MIN, clock.clone()),
            clock,
            sent: Watermark::NONE,
            reported_idle: None,
            called: Duration::ZERO,
        }
    }

    /// Adds a partition whose highest event time so far is `highest`.
    pub fn add(&mut self, highest: Timestamp) {
        self.merge.add();
        self.reported_idle = None;
        self.raise_bound(highest);
        self.partitions.push(PartitionTime::new(highest));
    }

    /// Sets the highest event time that an earlier attempt has read from a partition.
    pub fn restore(&mut self, index: usize, highest: Timestamp) {
        self.raise_bound(highest);
        let partition = &mut self.partitions[index];
        *partition = PartitionTime::new(partition.highest.max(highest));
    }

    /// Makes a partition active that continues at another position.
    #[cfg(feature = "kafka")]
    pub fn reset(&mut self, index: usize, highest: Timestamp) {
        self.restore(index, highest);
        self.partitions[index].is_touched = true;
    }

    /// Raises the bound for event times to the highest event time of an earlier attempt.
    fn raise_bound(&mut self, highest: Timestamp) {
        let highest = self.bound.highest().max(highest);
        let ahead = self.policy.wanted_max_ahead();
        self.bound = AheadBound::new(ahead, highest, self.clock.clone());
    }

    /// Records the event time of a record.
    ///
    /// A record without a valid time does not end idleness: a partition of such records must not
    /// hold back the watermark.
    #[inline]
    pub fn record(&mut self, index: usize, time: Timestamp) {
        if self.bound.take(time).is_ok() {
            let partition = &mut self.partitions[index];
            partition.highest = partition.highest.max(time);
            partition.is_touched = true;
            partition.activity = Activity::Behind;
        }
    }

    /// Returns the highest event time of a partition.
    pub fn highest(&self, index: usize) -> Timestamp {
        self.partitions[index].highest
    }

    /// Marks a partition without further records at the moment.
    pub fn at_end(&mut self, index: usize, now: Duration) {
        if self.is_behind(index) {
            self.partitions[index].activity = Activity::AtEnd(now);
        }
    }

    /// Returns true if more records of a partition are available.
    pub fn is_behind(&self, index: usize) -> bool {
        self.partitions[index].activity == Activity::Behind
    }

    /// Marks a partition that is fully read.
    pub fn finish(&mut self, index: usize) {
        let partition = &mut self.partitions[index];
        partition.activity = Activity::Done;
        partition.is_touched = true;
    }

    /// Returns true if a partition is fully read.
    #[cfg(feature = "kafka")]
    pub fn is_done(&self, index: usize) -> bool {
        self.partitions[index].activity == Activity::Done
    }

    /// Returns true if all partitions are fully read.
    #[cfg(feature = "kafka")]
    pub fn are_done(&self) -> bool {
        (0..self.partitions.len()).all(|index| self.is_done(index))
    }

    /// Returns the watermark and idleness to emit.
    pub fn time(&mut self, now: Duration) -> TimeOutput {
        let mut output = TimeOutput::default();
        self.restart_timeouts(now);
        let idle_after = self.policy.wanted_idle_timeout();
        for (input, partition) in self.partitions.iter_mut().enumerate() {
            let mut rose = None;
            if std::mem::take(&mut partition.is_touched) {
                self.merge.record(input);
                self.reported_idle = None;
                if partition.highest.is_event_time() {
                    let watermark = self.policy.behind(partition.highest);
                    rose = self.merge.advance(input, watermark);
                }
                if partition.activity == Activity::Done {
                    rose = self.merge.done(input).or(rose);
                }
            }
            if let (Activity::AtEnd(since), Some(idle_after)) = (partition.activity, idle_after)
                && now.saturating_sub(since) >= idle_after
            {
                partition.activity = Activity::Idle;
                rose = self.merge.idle(input).or(rose);
            }
            output.watermark = rose.or(output.watermark);
        }
        // The final watermark is emitted by the end of the source.
        output.watermark = output.watermark.filter(|watermark| {
            *watermark != Watermark::END && self.policy.is_due(self.sent, *watermark)
        });
        self.sent = output.watermark.unwrap_or(self.sent);
        let is_idle = self.merge.is_idle() || (self.partitions.is_empty() && idle_after.is_some());
        let again = idle_after.unwrap_or_default();
        let is_reported = |at: Duration| now.saturating_sub(at) < again;
        output.is_idle = is_idle && !self.reported_idle.is_some_and(is_reported);
        if output.is_idle {
            self.reported_idle = Some(now);
        }
        output
    }

    /// Restarts idle timeouts after a gap between calls, and for all partitions when the first idle
    /// one becomes active.
    fn restart_timeouts(&mut self, now: Duration) {
        let slept = now.saturating_sub(self.called);
        self.called = now;
        let wakes = self.merge.is_idle() && self.partitions.iter().any(|it| it.is_touched);
        for (input, partition) in self.partitions.iter_mut().enumerate() {
            match &mut partition.activity {
                Activity::AtEnd(since) if slept > MAX_CALL_INTERVAL => *since += slept,
                Activity::Idle if wakes => {
                    partition.activity = Activity::AtEnd(now);
                    self.merge.record(input);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn watermarks(policy: WatermarkPolicy) -> SourceWatermarks {
        let mut watermarks = SourceWatermarks::new(policy, Clock::system());
        watermarks.add(Timestamp::MIN);
        watermarks
    }

    #[test]
    fn a_stride_holds_watermarks_back_until_event_time_has_crossed_it() {
        let policy = WatermarkPolicy::in_order().stride(Duration::from_secs(10));
        let mut watermarks = watermarks(policy);
        let mut sent = Vec::new();
        for secs in [3, 5, 12, 19, 20] {
            watermarks.record(0, at(secs));
            sent.extend(watermarks.time(Duration::ZERO).watermark);
        }
        assert_eq!(sent, [3, 12, 20].map(|secs| Watermark(at(secs))));
    }

    #[test]
    fn a_restored_event_time_is_the_watermark_before_the_first_record() {
        let mut watermarks = watermarks(WatermarkPolicy::in_order());
        watermarks.restore(0, at(7));
        let output = watermarks.time(Duration::ZERO);
        assert_eq!(output.watermark, Some(Watermark(at(7))));
    }
}
