//! Watermarks from event times: the pure part, without clock or outbox.

use std::time::Duration;

use ardea_core::{Timestamp, Watermark};

use crate::time::WatermarkPolicy;

/// Makes the watermarks of an input from what is read of it. Those that it returns only ever rise.
///
/// Pure: the caller says what time it is, on a monotonic clock.
#[derive(Clone, Debug)]
pub(crate) struct WatermarkGenerator {
    policy: WatermarkPolicy,
    /// The highest watermark that the event times allow.
    known: Watermark,
    sent: Watermark,
    last_record: Duration,
    is_idle: bool,
}

/// What [`WatermarkGenerator::silence`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Silence {
    /// A watermark to send: what the stride has held back.
    pub(crate) watermark: Option<Watermark>,
    /// The input has now become idle: send an idle marker, after the watermark.
    pub(crate) turned_idle: bool,
    /// When to ask again; `None` if nothing will change without a record.
    pub(crate) ask_again: Option<Duration>,
}

impl WatermarkGenerator {
    /// For an input whose silence is measured from `now`.
    pub(crate) fn new(policy: WatermarkPolicy, now: Duration) -> Self {
        WatermarkGenerator {
            policy,
            known: Watermark::NONE,
            sent: Watermark::NONE,
            last_record: now,
            is_idle: false,
        }
    }

    /// What it has promised and what it knows.
    pub(crate) fn remembered(&self) -> [Watermark; 2] {
        [self.sent, self.known]
    }

    /// Goes on from what another [remembered](Self::remembered). What that has promised is to be said once more.
    pub(crate) fn remember(&mut self, [sent, known]: [Watermark; 2]) -> Option<Watermark> {
        (self.sent, self.known) = (sent, known);
        Some(sent).filter(|sent| *sent > Watermark::NONE)
    }

    /// Records came, `highest` being their latest event time ([`Timestamp::MIN`] if they had none). Returns a watermark to send
    /// behind them, if one is due. An input that was idle speaks again.
    pub(crate) fn records(&mut self, highest: Timestamp, now: Duration) -> Option<Watermark> {
        self.last_record = now;
        self.is_idle = false;
        self.known = self.known.max(self.policy.behind(highest));
        let is_due = self.policy.is_due(self.sent, self.known);
        self.send_if(is_due)
    }

    /// Asks whether the input has been silent for longer than the policy's timeout.
    pub(crate) fn silence(&mut self, now: Duration) -> Silence {
        let deadline = self
            .policy
            .wanted_idle_timeout()
            .filter(|_| !self.is_idle)
            .map(|timeout| self.last_record.saturating_add(timeout));
        if deadline.is_none_or(|deadline| deadline > now) {
            return Silence {
                watermark: None,
                turned_idle: false,
                ask_again: deadline,
            };
        }
        self.is_idle = true;
        Silence {
            // Who falls silent says all that it knows: the stride does not hold back a last watermark.
            watermark: self.send_if(self.known > self.sent),
            turned_idle: true,
            ask_again: None,
        }
    }

    fn send_if(&mut self, is_due: bool) -> Option<Watermark> {
        is_due.then(|| {
            self.sent = self.known;
            self.known
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::at;
    use proptest::prelude::*;

    const NOW: Duration = Duration::ZERO;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn an_older_record_does_not_pull_the_watermark_back() {
        let mut generator = WatermarkGenerator::new(WatermarkPolicy::in_order(), NOW);
        assert_eq!(generator.records(at(9), NOW), Some(Watermark(at(9))));
        assert_eq!(generator.records(at(5), NOW), None);
        assert_eq!(generator.records(at(10), NOW), Some(Watermark(at(10))));
    }

    #[test]
    fn records_without_time_only_end_a_silence() {
        let mut generator = WatermarkGenerator::new(WatermarkPolicy::in_order(), NOW);
        assert!(generator.silence(secs(10)).turned_idle);
        assert_eq!(generator.records(Timestamp::MIN, secs(11)), None);
        assert_eq!(generator.silence(secs(12)).ask_again, Some(secs(21)));
    }

    #[test]
    fn falling_silent_sends_what_the_stride_held_back_and_says_so_once() {
        let policy = WatermarkPolicy::in_order().stride(secs(100));
        let mut generator = WatermarkGenerator::new(policy, NOW);
        generator.records(at(1), NOW);
        assert_eq!(generator.records(at(50), NOW), None);
        let silence = generator.silence(secs(10));
        assert_eq!(
            silence,
            Silence {
                watermark: Some(Watermark(at(50))),
                turned_idle: true,
                ask_again: None
            }
        );
        assert!(!generator.silence(secs(11)).turned_idle);
    }

    #[test]
    fn without_a_timeout_nobody_is_idle() {
        let policy = WatermarkPolicy::in_order().idle_timeout(None);
        let silence = WatermarkGenerator::new(policy, NOW).silence(Duration::MAX);
        assert_eq!(
            silence,
            Silence {
                watermark: None,
                turned_idle: false,
                ask_again: None
            }
        );
    }

    proptest! {
        #[test]
        fn watermarks_rise_and_a_record_within_the_lag_is_never_late(
            lag in 0u64..20,
            stride in 0u64..30,
            steps in prop::collection::vec((0u64..20, 0i64..5), 0..200),
        ) {
            let policy = WatermarkPolicy::out_of_order(secs(lag)).stride(secs(stride)).idle_timeout(None);
            let mut generator = WatermarkGenerator::new(policy, NOW);
            let (mut front, mut last) = (0i64, Watermark::NONE);
            for (back, ahead) in steps {
                front += ahead;
                // Each record is at most the lag behind the latest.
                let time = at(front - (back.min(lag) as i64));
                prop_assert!(last == Watermark::NONE || time >= last.0, "{time:?} is late behind {last:?}");
                if let Some(next) = generator.records(time, NOW) {
                    prop_assert!(next > last);
                    last = next;
                }
            }
        }

        #[test]
        fn watermarks_rise_however_often_the_input_falls_silent(
            steps in prop::collection::vec((0u8..4, 0i64..100, 0u64..6), 0..200),
        ) {
            let mut generator = WatermarkGenerator::new(WatermarkPolicy::in_order(), NOW);
            let (mut now, mut last) = (NOW, Watermark::NONE);
            for (action, time, passed) in steps {
                now += secs(passed);
                let next = match action {
                    0 => generator.silence(now).watermark,
                    _ => generator.records(at(time), now),
                };
                if let Some(next) = next {
                    prop_assert!(next > last && next < Watermark::END);
                    last = next;
                }
            }
        }
    }
}
