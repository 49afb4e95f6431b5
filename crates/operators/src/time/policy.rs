//! How watermarks follow the event times that were seen.

use std::time::Duration;

use ardea_core::{Timestamp, Watermark};

/// How watermarks follow the event times that were seen.
///
/// * **Lag.** How far out of order records may be: the watermark stays this far behind the latest event time. A record that
///   is older still is late. More lag means fewer late records and later results.
/// * **Stride.** A watermark costs a pass through the whole graph. With a stride one is sent only when time has crossed a
///   multiple of it; windows lose nothing by the stride of their slide, since nothing becomes final in between. Zero (the
///   default) sends one after every chunk that advances time.
/// * **Idle timeout.** A source that has been silent for so long (10 s unless told otherwise) stops holding back the
///   watermark of others, until it speaks again.
/// * **Max ahead.** A record may be this far (a day unless set otherwise) ahead of both the latest event time before it and the
///   wall clock. A record further ahead is set aside and does not move the watermark: a single wrong time would make all
///   records after it late. Recordings of the past are never affected, whatever gaps they have.
///
/// ```
/// use std::time::Duration;
/// use ardea_operators::WatermarkPolicy;
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
    /// How long a source may be silent before it is idle, unless told otherwise.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

    /// How far ahead a record may be, unless set otherwise: a day.
    pub const MAX_AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

    /// For records in the order of their event times.
    pub const fn in_order() -> Self {
        WatermarkPolicy::out_of_order(Duration::ZERO)
    }

    /// For records that come up to `lag` after later ones.
    pub const fn out_of_order(lag: Duration) -> Self {
        WatermarkPolicy {
            lag,
            stride: Duration::ZERO,
            idle_timeout: Some(WatermarkPolicy::IDLE_TIMEOUT),
            max_ahead: Some(WatermarkPolicy::MAX_AHEAD),
        }
    }

    /// Sets the multiple of event time at which a watermark is worth sending.
    pub const fn stride(mut self, stride: Duration) -> Self {
        self.stride = stride;
        self
    }

    /// Sets how long a source may be silent; `None` never takes it for idle.
    pub const fn idle_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// How long a source may be silent, if there is a limit.
    pub const fn wanted_idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }

    /// Sets how far ahead of both the latest event time before it and the wall clock a record may be; `None` sets no bound.
    ///
    /// `None` is for event times that lie in the future on purpose, such as those of a simulation or of a schedule, and for
    /// machines whose clock is wrong.
    pub const fn max_ahead(mut self, ahead: Option<Duration>) -> Self {
        self.max_ahead = ahead;
        self
    }

    /// How far ahead a record may be, if there is a bound.
    pub const fn wanted_max_ahead(&self) -> Option<Duration> {
        self.max_ahead
    }

    /// The latest event time seen so far if `known` is the watermark that it allows.
    pub(crate) fn latest_of(&self, known: Watermark) -> Timestamp {
        match known {
            Watermark::NONE => Timestamp::MIN,
            Watermark(time) => time + self.lag,
        }
    }

    /// The watermark when `highest` is the latest event time seen.
    ///
    /// Never [`Watermark::END`]: no event time, however far off, ends the stream.
    pub fn behind(&self, highest: Timestamp) -> Watermark {
        Watermark((highest - self.lag).min(Timestamp::LAST_EVENT))
    }

    /// Whether `next` is worth sending when `sent` was the last.
    pub fn is_due(&self, sent: Watermark, next: Watermark) -> bool {
        let stride = i64::try_from(self.stride.as_micros())
            .unwrap_or(i64::MAX)
            .max(1);
        let step = |watermark: Watermark| watermark.0.as_micros().div_euclid(stride);
        next > sent && (sent == Watermark::NONE || step(next) > step(sent))
    }
}

/// In order, after every chunk, idle after ten seconds, records at most a day ahead.
impl Default for WatermarkPolicy {
    fn default() -> Self {
        WatermarkPolicy::in_order()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::at;

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
