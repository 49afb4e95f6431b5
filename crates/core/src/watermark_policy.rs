//! The relation of watermarks to event times.

use std::time::Duration;

use crate::{Timestamp, Watermark};

/// The relation of watermarks to the event times of records.
///
/// * **Lag.** The maximum out-of-orderness: the watermark stays this far behind the latest event
///   time. An older record is late. More lag means fewer late records and later results.
/// * **Stride.** A watermark costs a pass through the whole graph. With a stride, a watermark is
///   sent only when event time has crossed a multiple of the stride. A stride equal to the slide of
///   a window delays no result. With zero (the default), a watermark follows every chunk that
///   advances event time.
/// * **Idle timeout.** A source that has been silent for this time (default 10 s) no longer holds
///   back the watermark of other sources, until it sends again.
/// * **Max ahead.** The maximum distance of a record (default one day) ahead of both the latest
///   event time and the wall clock. A record further ahead is rejected and does not advance the
///   watermark: one wrong time would make all later records late. Recorded data of the past is
///   never affected, even with gaps.
///
/// ```
/// use std::time::Duration;
/// use ardea_core::WatermarkPolicy;
///
/// let policy = WatermarkPolicy::out_of_order(Duration::from_secs(5)).stride(Duration::from_millis(500));
/// assert_eq!(policy.wanted_idle_timeout(), Some(Duration::from_secs(10)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatermarkPolicy {
    lag: Duration,
    stride: Duration,
    idle_timeout: Option<Duration>,
    max_ahead: Option<Duration>,
}

impl WatermarkPolicy {
    /// The default idle timeout.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

    /// The default of [`max_ahead`](Self::max_ahead): one day.
    pub const MAX_AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

    /// Creates a policy for records in event-time order.
    pub const fn in_order() -> Self {
        WatermarkPolicy::out_of_order(Duration::ZERO)
    }

    /// Creates a policy for records that arrive at most `lag` out of order.
    pub const fn out_of_order(lag: Duration) -> Self {
        WatermarkPolicy {
            lag,
            stride: Duration::ZERO,
            idle_timeout: Some(WatermarkPolicy::IDLE_TIMEOUT),
            max_ahead: Some(WatermarkPolicy::MAX_AHEAD),
        }
    }

    /// Sets the lag: the maximum out-of-orderness.
    pub const fn lag(mut self, lag: Duration) -> Self {
        self.lag = lag;
        self
    }

    /// Sets the stride: a watermark is sent only when event time has crossed a multiple of
    /// `stride`.
    pub const fn stride(mut self, stride: Duration) -> Self {
        self.stride = stride;
        self
    }

    /// Sets the idle timeout. `None` disables it.
    pub const fn idle_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Returns the idle timeout, if any.
    pub const fn wanted_idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }

    /// Sets the maximum distance of a record ahead of both the latest event time and the wall
    /// clock. `None` disables the bound.
    ///
    /// `None` is for event times in the future, such as those of a simulation or schedule, and for
    /// hosts whose clock is wrong.
    pub const fn max_ahead(mut self, ahead: Option<Duration>) -> Self {
        self.max_ahead = ahead;
        self
    }

    /// Returns the maximum distance of a record ahead, if bounded.
    pub const fn wanted_max_ahead(&self) -> Option<Duration> {
        self.max_ahead
    }

    /// Returns the latest event time that corresponds to the watermark `known`.
    pub fn latest_of(&self, known: Watermark) -> Timestamp {
        match known {
            Watermark::NONE => Timestamp::MIN,
            Watermark(time) => time + self.lag,
        }
    }

    /// Returns the watermark for the latest event time `highest`.
    ///
    /// Never [`Watermark::END`]: no event time ends the stream.
    pub fn behind(&self, highest: Timestamp) -> Watermark {
        Watermark((highest - self.lag).min(Timestamp::LAST_EVENT))
    }

    /// Returns true if `next` should be sent after `sent`.
    pub fn is_due(&self, sent: Watermark, next: Watermark) -> bool {
        let stride = i64::try_from(self.stride.as_micros())
            .unwrap_or(i64::MAX)
            .max(1);
        let step = |watermark: Watermark| watermark.0.as_micros().div_euclid(stride);
        next > sent && (sent == Watermark::NONE || step(next) > step(sent))
    }
}

/// Records in order, a watermark after every chunk, idle after ten seconds, records at most one day
/// ahead.
impl Default for WatermarkPolicy {
    fn default() -> Self {
        WatermarkPolicy::in_order()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    #[test]
    fn a_watermark_is_due_when_it_crosses_a_multiple_of_the_stride() {
        let policy = WatermarkPolicy::in_order().stride(Duration::from_secs(10));
        assert!(policy.is_due(Watermark::NONE, Watermark(at(3))));
        assert!(!policy.is_due(Watermark(at(3)), Watermark(at(9))));
        assert!(policy.is_due(Watermark(at(9)), Watermark(at(10))));
        assert!(policy.is_due(Watermark(at(-1)), Watermark(at(0))));
        assert!(
            !policy.is_due(Watermark(at(25)), Watermark(at(12))),
            "never backwards"
        );
    }

    #[test]
    fn no_event_time_ends_the_stream_and_none_is_before_all_time() {
        let policy = WatermarkPolicy::out_of_order(Duration::ZERO);
        assert!(policy.behind(Timestamp::MAX) < Watermark::END);
        assert_eq!(policy.behind(Timestamp::MIN), Watermark::NONE);
    }
}
