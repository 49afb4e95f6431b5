//! Watermark generation from event times, without clock or outbox.

use std::time::Duration;

use ardea_core::{Timestamp, Watermark};

use crate::time::WatermarkPolicy;

/// Computes the watermarks of an input from its event times. Returned watermarks strictly increase.
///
/// Pure: the caller passes the current time of a monotonic clock.
#[derive(Clone, Debug)]
pub(crate) struct WatermarkGenerator {
    policy: WatermarkPolicy,
    /// The highest watermark that the event times allow.
    known: Watermark,
    sent: Watermark,
    last_record: Duration,
    quiet: IdleState,
}

/// The idleness of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IdleState {
    /// Active, as far as is known.
    Active,
    /// Silent for longer than the timeout when checked at this time. The process may only have been
    /// suspended, so a second check follows.
    MaybeIdle(Duration),
    /// Idle; reported at this time.
    Idle(Duration),
}

/// The maximum delay of a requested wake-up on a busy host.
const WAKES_LATE: Duration = Duration::from_secs(1);

/// The result of [`WatermarkGenerator::check_idle`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IdleCheck {
    /// A watermark to send, which the stride of the policy has held back.
    pub(crate) watermark: Option<Watermark>,
    /// True if an idle marker must be sent after the watermark: the input has become idle, or has
    /// been idle for another timeout.
    pub(crate) send_idle: bool,
    /// The time of the next check. `None` if nothing changes without a record.
    pub(crate) next_check: Option<Duration>,
}

impl WatermarkGenerator {
    /// Creates a generator whose silence is measured from `now`.
    pub(crate) fn new(policy: WatermarkPolicy, now: Duration) -> Self {
        WatermarkGenerator {
            policy,
            known: Watermark::NONE,
            sent: Watermark::NONE,
            last_record: now,
            quiet: IdleState::Active,
        }
    }

    /// Returns the state to checkpoint: the watermark sent, and the highest that the event times
    /// allow.
    pub(crate) fn state(&self) -> [Watermark; 2] {
        [self.sent, self.known]
    }

    /// Returns the latest known event time of the input.
    pub(crate) fn highest(&self) -> Timestamp {
        self.policy.latest_of(self.known)
    }

    /// Restores [checkpointed](Self::state) state. Returns the watermark that must be sent again.
    pub(crate) fn restore(&mut self, [sent, known]: [Watermark; 2]) -> Option<Watermark> {
        (self.sent, self.known) = (sent, known);
        Some(sent).filter(|sent| *sent > Watermark::NONE)
    }

    /// Handles records whose latest event time is `highest` ([`Timestamp::MIN`] if they have none).
    /// Returns the watermark to send after them, if one is due. The input becomes active.
    pub(crate) fn records(&mut self, highest: Timestamp, now: Duration) -> Option<Watermark> {
        self.observe(highest, now);
        self.take_due()
    }

    /// Handles records like [`records`](Self::records), but leaves the watermark due.
    pub(crate) fn observe(&mut self, highest: Timestamp, now: Duration) {
        self.last_record = now;
        self.quiet = IdleState::Active;
        self.known = self.known.max(self.policy.behind(highest));
    }

    /// Returns the watermark to send, if one is due.
    pub(crate) fn take_due(&mut self) -> Option<Watermark> {
        let is_due = self.policy.is_due(self.sent, self.known);
        self.send_if(is_due)
    }

    /// Returns the state of idleness to checkpoint, on a clock that continues after a restore: the
    /// time of the last record, the state's number, and the time since which it holds.
    pub(crate) fn silence(&self) -> [Duration; 3] {
        let (state, since) = match self.quiet {
            IdleState::Active => (0, Duration::ZERO),
            IdleState::MaybeIdle(since) => (1, since),
            IdleState::Idle(since) => (2, since),
        };
        [self.last_record, Duration::from_micros(state), since]
    }

    /// Restores the [state of idleness](Self::silence).
    pub(crate) fn restore_silence(&mut self, [last_record, state, since]: [Duration; 3]) {
        self.last_record = last_record;
        self.quiet = match state.as_micros() {
            1 => IdleState::MaybeIdle(since),
            2 => IdleState::Idle(since),
            _ => IdleState::Active,
        };
    }

    /// Checks whether the input has been silent for longer than the policy's timeout. The input
    /// counts as idle only if it is still silent a tenth of the timeout later. This protects
    /// against suspended processes and hosts, for which much time passes at once.
    pub(crate) fn check_idle(&mut self, now: Duration) -> IdleCheck {
        let mut silence = IdleCheck::default();
        let Some(timeout) = self.policy.wanted_idle_timeout() else {
            return silence;
        };
        let grace = timeout / 10;
        let due = match self.quiet {
            IdleState::Active => self.last_record.saturating_add(timeout),
            IdleState::MaybeIdle(since) => since.saturating_add(grace),
            IdleState::Idle(said) => said.saturating_add(timeout),
        };
        if now < due {
            silence.next_check = Some(due);
            return silence;
        }
        let has_slept = now > due.saturating_add(grace + WAKES_LATE);
        match self.quiet {
            IdleState::MaybeIdle(_) if !has_slept => {
                // The stride must not hold back the last watermark of an idle input.
                silence.watermark = self.send_if(self.known > self.sent);
                silence.send_idle = true;
            }
            IdleState::Idle(_) => silence.send_idle = true,
            IdleState::Active | IdleState::MaybeIdle(_) => {
                self.quiet = IdleState::MaybeIdle(now);
                silence.next_check = Some(now.saturating_add(grace));
                return silence;
            }
        }
        self.quiet = IdleState::Idle(now);
        silence.next_check = Some(now.saturating_add(timeout));
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
    use crate::test_driver::at;
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

    /// Calls `check_idle` at the requested times until it reports idle. Returns that time.
    fn idle_at(generator: &mut WatermarkGenerator, mut now: Duration) -> (Duration, IdleCheck) {
        loop {
            let silence = generator.check_idle(now);
            if silence.send_idle {
                return (now, silence);
            }
            now = silence.next_check.expect("it will be");
        }
    }

    #[test]
    fn records_without_time_only_end_a_silence() {
        let mut generator = WatermarkGenerator::new(WatermarkPolicy::in_order(), NOW);
        assert_eq!(idle_at(&mut generator, NOW).0, secs(11));
        assert_eq!(generator.records(Timestamp::MIN, secs(12)), None);
        assert_eq!(generator.check_idle(secs(13)).next_check, Some(secs(22)));
    }

    #[test]
    fn falling_silent_sends_what_the_stride_held_back_and_is_said_again() {
        let policy = WatermarkPolicy::in_order().stride(secs(100));
        let mut generator = WatermarkGenerator::new(policy, NOW);
        generator.records(at(1), NOW);
        assert_eq!(generator.records(at(50), NOW), None);
        let (idle, silence) = idle_at(&mut generator, NOW);
        assert_eq!(silence.watermark, Some(Watermark(at(50))));
        assert_eq!(silence.next_check, Some(idle + secs(10)));
        assert!(!generator.check_idle(idle + secs(9)).send_idle);
        let again = generator.check_idle(idle + secs(10));
        assert!(again.send_idle && again.watermark.is_none());
    }

    #[test]
    fn a_suspended_process_is_not_idle() {
        let mut generator = WatermarkGenerator::new(WatermarkPolicy::in_order(), NOW);
        for pause in [30, 60, 90] {
            let found = generator.check_idle(secs(pause));
            assert!(!found.send_idle, "it has not read since it goes on");
        }
        generator.records(at(1), secs(91));
        assert_eq!(idle_at(&mut generator, secs(91)).0, secs(102));
    }

    #[test]
    fn without_a_timeout_no_input_is_idle() {
        let policy = WatermarkPolicy::in_order().idle_timeout(None);
        let silence = WatermarkGenerator::new(policy, NOW).check_idle(Duration::MAX);
        assert_eq!(silence, IdleCheck::default());
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
                // No record is further than the lag behind the latest one.
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
                    0 => generator.check_idle(now).watermark,
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
