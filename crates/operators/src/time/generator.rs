//! Watermarks from event times: the pure part, without clock or outbox.

use std::time::Duration;

use ardea_core::{Timestamp, Watermark, WatermarkMerge};

use crate::time::WatermarkPolicy;

/// Makes the watermarks of a source from what it reads, for one or several partitions.
///
/// Each partition has a watermark of its own, and the source's is their minimum, without those that are silent: so the order
/// in which partitions are read makes no record late. The watermarks that it returns only ever rise.
///
/// Pure: the caller says what time it is, on a monotonic clock.
///
/// ```
/// use std::time::Duration;
/// use ardea_core::{Timestamp, Watermark};
/// use ardea_operators::{WatermarkGenerator, WatermarkPolicy};
///
/// let now = Duration::ZERO;
/// let mut generator = WatermarkGenerator::new(WatermarkPolicy::out_of_order(Duration::from_secs(2)), 2, now);
/// assert_eq!(generator.records(0, Timestamp::from_secs(9), now), None, "the other partition has not spoken");
/// assert_eq!(generator.records(1, Timestamp::from_secs(5), now), Some(Watermark(Timestamp::from_secs(3))));
/// ```
#[derive(Clone, Debug)]
pub struct WatermarkGenerator {
    policy: WatermarkPolicy,
    partitions: Vec<Partition>,
    merge: WatermarkMerge,
    sent: Watermark,
}

#[derive(Clone, Copy, Debug)]
struct Partition {
    state: State,
    last_record: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its watermark counts.
    Speaking,
    /// Silent for longer than the timeout; its watermark does not count.
    Idle,
    /// Nothing more comes.
    Done,
}

/// What [`WatermarkGenerator::silence`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    /// A watermark to send, if time has advanced because a partition no longer holds it back.
    pub watermark: Option<Watermark>,
    /// All partitions have now become idle: send an idle marker, after the watermark.
    pub turned_idle: bool,
    /// When to ask again; `None` if nothing will change without a record.
    pub ask_again: Option<Duration>,
}

impl WatermarkGenerator {
    /// For `partitions` partitions, whose silence is measured from `now`.
    pub fn new(policy: WatermarkPolicy, partitions: usize, now: Duration) -> Self {
        WatermarkGenerator {
            policy,
            partitions: vec![
                Partition {
                    state: State::Speaking,
                    last_record: now
                };
                partitions
            ],
            merge: WatermarkMerge::new(partitions),
            sent: Watermark::NONE,
        }
    }

    /// Records came from `partition`, `highest` being their latest event time ([`Timestamp::MIN`] if they had none). Returns a
    /// watermark to send behind them, if one is due.
    ///
    /// A partition that was idle speaks again. Cost: a scan of the partitions.
    pub fn records(
        &mut self,
        partition: usize,
        highest: Timestamp,
        now: Duration,
    ) -> Option<Watermark> {
        let of = &mut self.partitions[partition];
        if of.state == State::Done {
            return None;
        }
        *of = Partition {
            state: State::Speaking,
            last_record: now,
        };
        self.merge.record(partition);
        self.merge.advance(partition, self.policy.behind(highest));
        self.send_if(WatermarkPolicy::is_due)
    }

    /// `partition` has ended. Returns a watermark to send, if it was the one that held the others back.
    ///
    /// When all have ended, the end of the source itself says so; no watermark is returned for it.
    pub fn done(&mut self, partition: usize) -> Option<Watermark> {
        self.partitions[partition].state = State::Done;
        self.merge.done(partition);
        self.send_if(WatermarkPolicy::is_due)
    }

    /// Asks which partitions have been silent for longer than the policy's timeout.
    pub fn silence(&mut self, now: Duration) -> Silence {
        let mut ask_again: Option<Duration> = None;
        let mut turned = false;
        let Some(timeout) = self.policy.wanted_idle_timeout() else {
            return Silence {
                watermark: None,
                turned_idle: false,
                ask_again: None,
            };
        };
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            if partition.state != State::Speaking {
                continue;
            }
            let deadline = partition.last_record.saturating_add(timeout);
            if deadline <= now {
                partition.state = State::Idle;
                self.merge.idle(index);
                turned = true;
            } else {
                ask_again = Some(ask_again.map_or(deadline, |earlier| earlier.min(deadline)));
            }
        }
        // Who falls silent says all that it knows: the stride does not hold back a last watermark.
        let watermark = if turned {
            self.send_if(|_, sent, next| next > sent)
        } else {
            None
        };
        Silence {
            watermark,
            turned_idle: turned && self.merge.is_idle(),
            ask_again,
        }
    }

    fn send_if(
        &mut self,
        due: impl Fn(&WatermarkPolicy, Watermark, Watermark) -> bool,
    ) -> Option<Watermark> {
        let next = self.merge.merged();
        (next != Watermark::END && due(&self.policy, self.sent, next)).then(|| {
            self.sent = next;
            next
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
        let mut generator = WatermarkGenerator::new(WatermarkPolicy::in_order(), 1, NOW);
        assert_eq!(generator.records(0, at(9), NOW), Some(Watermark(at(9))));
        assert_eq!(generator.records(0, at(5), NOW), None);
        assert_eq!(generator.records(0, at(10), NOW), Some(Watermark(at(10))));
    }

    #[test]
    fn records_without_time_only_end_a_silence() {
        let mut generator = WatermarkGenerator::new(WatermarkPolicy::in_order(), 1, NOW);
        assert!(generator.silence(secs(10)).turned_idle);
        assert_eq!(generator.records(0, Timestamp::MIN, secs(11)), None);
        assert_eq!(generator.silence(secs(12)).ask_again, Some(secs(21)));
    }

    #[test]
    fn a_silent_partition_stops_holding_the_others_and_holds_again_when_it_speaks() {
        let mut generator = WatermarkGenerator::new(WatermarkPolicy::in_order(), 2, NOW);
        generator.records(0, at(20), NOW);
        generator.records(1, at(5), NOW);
        generator.records(0, at(30), secs(9));
        let silence = generator.silence(secs(10));
        assert_eq!(
            (silence.watermark, silence.turned_idle),
            (Some(Watermark(at(30))), false)
        );
        assert_eq!(silence.ask_again, Some(secs(19)));
        assert_eq!(generator.records(1, at(31), secs(11)), None);
        assert_eq!(
            generator.records(0, at(40), secs(11)),
            Some(Watermark(at(31)))
        );
    }

    #[test]
    fn falling_silent_sends_what_the_stride_held_back_and_says_so_once() {
        let policy = WatermarkPolicy::in_order().stride(secs(100));
        let mut generator = WatermarkGenerator::new(policy, 1, NOW);
        generator.records(0, at(1), NOW);
        assert_eq!(generator.records(0, at(50), NOW), None);
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
    fn an_ended_partition_holds_nobody_back() {
        let mut generator = WatermarkGenerator::new(WatermarkPolicy::in_order(), 2, NOW);
        generator.records(0, at(5), NOW);
        assert_eq!(generator.done(1), Some(Watermark(at(5))));
        assert_eq!(generator.done(0), None);
    }

    #[test]
    fn without_a_timeout_nobody_is_idle() {
        let mut generator =
            WatermarkGenerator::new(WatermarkPolicy::in_order().idle_timeout(None), 1, NOW);
        let silence = generator.silence(Duration::MAX);
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
        fn watermarks_rise_and_a_partition_within_its_lag_is_never_late(
            lag in 0u64..20,
            stride in 0u64..30,
            steps in prop::collection::vec((0usize..3, 0u64..20, 0i64..5), 0..200),
        ) {
            let policy = WatermarkPolicy::out_of_order(secs(lag)).stride(secs(stride)).idle_timeout(None);
            let mut generator = WatermarkGenerator::new(policy, 3, NOW);
            let mut front = [0i64; 3];
            let mut last = Watermark::NONE;
            for (partition, back, ahead) in steps {
                front[partition] += ahead;
                // Each record is at most the lag behind its partition's latest.
                let time = at(front[partition] - (back.min(lag) as i64));
                prop_assert!(last == Watermark::NONE || time >= last.0, "{time:?} is late behind {last:?}");
                if let Some(next) = generator.records(partition, time, NOW) {
                    prop_assert!(next > last);
                    last = next;
                }
            }
        }

        #[test]
        fn watermarks_rise_whatever_falls_silent(
            steps in prop::collection::vec((0usize..3, 0u8..4, 0i64..100, 0u64..6), 0..200),
        ) {
            let mut generator = WatermarkGenerator::new(WatermarkPolicy::in_order(), 3, NOW);
            let (mut now, mut last) = (NOW, Watermark::NONE);
            for (partition, action, time, passed) in steps {
                now += secs(passed);
                let next = match action {
                    0 => generator.silence(now).watermark,
                    _ => generator.records(partition, at(time), now),
                };
                if let Some(next) = next {
                    prop_assert!(next > last && next < Watermark::END);
                    last = next;
                }
            }
        }
    }
}
