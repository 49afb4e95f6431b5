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
    quiet: Quiet,
}

/// How silent the input is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Quiet {
    /// Not for too long, as far as is known.
    No,
    /// For too long, as it was found then; whoever did not run meanwhile would find so, too, though there is something to read.
    Perhaps(Duration),
    /// For too long; it was said then.
    Idle(Duration),
}

/// How late somebody may come who asked to be woken, on a machine that has other things to do.
const WAKES_LATE: Duration = Duration::from_secs(1);

/// What [`WatermarkGenerator::silence`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Silence {
    /// A watermark to send: what the stride has held back.
    pub(crate) watermark: Option<Watermark>,
    /// The input has now become idle, or still is after another timeout: send an idle marker, after the watermark.
    pub(crate) says_idle: bool,
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
            quiet: Quiet::No,
        }
    }

    /// What it has promised and what it knows.
    pub(crate) fn remembered(&self) -> [Watermark; 2] {
        [self.sent, self.known]
    }

    /// The latest event time that the input had, as far as is known.
    pub(crate) fn highest(&self) -> Timestamp {
        self.policy.latest_of(self.known)
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
        self.quiet = Quiet::No;
        self.known = self.known.max(self.policy.behind(highest));
        let is_due = self.policy.is_due(self.sent, self.known);
        self.send_if(is_due)
    }

    /// Asks whether the input has been silent for longer than the policy's timeout. It counts as idle when it is still silent a tenth of that later: a
    /// process that was stopped, or a machine that slept, finds at once that much time has passed.
    pub(crate) fn silence(&mut self, now: Duration) -> Silence {
        let mut silence = Silence::default();
        let Some(timeout) = self.policy.wanted_idle_timeout() else {
            return silence;
        };
        let grace = timeout / 10;
        let due = match self.quiet {
            Quiet::No => self.last_record.saturating_add(timeout),
            Quiet::Perhaps(since) => since.saturating_add(grace),
            Quiet::Idle(said) => said.saturating_add(timeout),
        };
        if now < due {
            silence.ask_again = Some(due);
            return silence;
        }
        let has_slept = now > due.saturating_add(grace + WAKES_LATE);
        match self.quiet {
            Quiet::Perhaps(_) if !has_slept => {
                // Who falls silent says all that it knows: the stride does not hold back a last watermark.
                silence.watermark = self.send_if(self.known > self.sent);
                silence.says_idle = true;
            }
            Quiet::Idle(_) => silence.says_idle = true,
            Quiet::No | Quiet::Perhaps(_) => {
                self.quiet = Quiet::Perhaps(now);
                silence.ask_again = Some(now.saturating_add(grace));
                return silence;
            }
        }
        self.quiet = Quiet::Idle(now);
        silence.ask_again = Some(now.saturating_add(timeout));
        silence
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

    /// Asks when it wants to be asked, until it says that it is idle; when that is.
    fn idle_at(generator: &mut WatermarkGenerator, mut now: Duration) -> (Duration, Silence) {
        loop {
            let silence = generator.silence(now);
            if silence.says_idle {
                return (now, silence);
            }
            now = silence.ask_again.expect("it will be");
        }
    }

    #[test]
    fn records_without_time_only_end_a_silence() {
        let mut generator = WatermarkGenerator::new(WatermarkPolicy::in_order(), NOW);
        assert_eq!(idle_at(&mut generator, NOW).0, secs(11));
        assert_eq!(generator.records(Timestamp::MIN, secs(12)), None);
        assert_eq!(generator.silence(secs(13)).ask_again, Some(secs(22)));
    }

    #[test]
    fn falling_silent_sends_what_the_stride_held_back_and_is_said_again() {
        let policy = WatermarkPolicy::in_order().stride(secs(100));
        let mut generator = WatermarkGenerator::new(policy, NOW);
        generator.records(at(1), NOW);
        assert_eq!(generator.records(at(50), NOW), None);
        let (idle, silence) = idle_at(&mut generator, NOW);
        assert_eq!(silence.watermark, Some(Watermark(at(50))));
        assert_eq!(silence.ask_again, Some(idle + secs(10)));
        assert!(!generator.silence(idle + secs(9)).says_idle);
        let again = generator.silence(idle + secs(10));
        assert!(again.says_idle && again.watermark.is_none());
    }

    #[test]
    fn who_was_stopped_for_long_has_not_been_silent() {
        let mut generator = WatermarkGenerator::new(WatermarkPolicy::in_order(), NOW);
        for pause in [30, 60, 90] {
            let found = generator.silence(secs(pause));
            assert!(!found.says_idle, "it has not read since it goes on");
        }
        generator.records(at(1), secs(91));
        assert_eq!(idle_at(&mut generator, secs(91)).0, secs(102));
    }

    #[test]
    fn without_a_timeout_nobody_is_idle() {
        let policy = WatermarkPolicy::in_order().idle_timeout(None);
        let silence = WatermarkGenerator::new(policy, NOW).silence(Duration::MAX);
        assert_eq!(silence, Silence::default());
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
