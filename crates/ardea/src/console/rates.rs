//! Records per second, over a sliding time span.

use std::collections::VecDeque;
use std::time::Duration;

/// The time span of a rate: long enough to be steady, short enough to follow changes.
const SPAN: Duration = Duration::from_secs(2);

/// The rate of a counter that only grows.
#[derive(Debug)]
pub struct Rate {
    /// The samples; never empty.
    samples: VecDeque<(Duration, u64)>,
}

impl Default for Rate {
    /// Creates the rate of a counter that is zero at the time zero.
    fn default() -> Self {
        Rate {
            samples: VecDeque::from([(Duration::ZERO, 0)]),
        }
    }
}

impl Rate {
    /// Adds a sample of the counter at the time `now`; returns its growth per second over the last
    /// [`SPAN`].
    pub fn sample(&mut self, now: Duration, count: u64) -> f64 {
        // The newest sample that is at least [`SPAN`] old stays as the base.
        while self
            .samples
            .get(1)
            .is_some_and(|&(at, _)| now.saturating_sub(at) >= SPAN)
        {
            self.samples.pop_front();
        }
        self.samples.push_back((now, count));
        let (since, before) = self.samples[0];
        let seconds = now.saturating_sub(since).as_secs_f64();
        if seconds > 0.0 {
            count.saturating_sub(before) as f64 / seconds
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_moments_and_not_of_the_whole_run() {
        let mut rate = Rate::default();
        let tenths = |n: u64| Duration::from_millis(n * 100);
        assert_eq!(rate.sample(tenths(0), 0), 0.0);
        let fast: Vec<f64> = (1..=50).map(|n| rate.sample(tenths(n), n * 100)).collect();
        assert!(
            fast.iter().all(|rate| (rate - 1000.0).abs() < 1.0),
            "{fast:?}"
        );
        let idle = (51..=100).map(|n| rate.sample(tenths(n), 5000)).last();
        assert_eq!(idle, Some(0.0));
        assert!(rate.samples.len() < 30, "samples are not kept for ever");
    }
}
