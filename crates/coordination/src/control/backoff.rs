//! Exponential backoff for retries.

use std::time::Duration;

/// Exponential backoff: retry delays that double from the second delay on, and are reset after a
/// period without failures.
#[derive(Clone, Debug)]
pub struct Backoff {
    config: BackoffConfig,
    next: Duration,
    last: Option<Duration>,
}

/// Limits of the retry delays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackoffConfig {
    /// The first delay; zero to retry immediately after the first failure.
    pub first: Duration,
    /// The minimum of the second delay and of all later delays.
    pub second: Duration,
    /// The maximum delay.
    pub most: Duration,
    /// The time without a failure after which the delay is reset to `first`.
    pub forgets_after: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        BackoffConfig {
            first: Duration::ZERO,
            second: Duration::from_millis(100),
            most: Duration::from_secs(30),
            forgets_after: Duration::from_secs(120),
        }
    }
}

impl Backoff {
    /// Creates a backoff that has recorded no failure.
    pub fn new(config: BackoffConfig) -> Self {
        Backoff {
            config,
            next: config.first,
            last: None,
        }
    }

    /// Records a failure at `now` and returns the time of the next retry.
    pub fn failed(&mut self, now: Duration) -> Duration {
        let quiet = self
            .last
            .is_some_and(|last| now >= last + self.config.forgets_after);
        if quiet {
            self.next = self.config.first;
        }
        let at = now + self.next;
        self.last = Some(at);
        self.next = (self.next * 2)
            .max(self.config.second)
            .min(self.config.most);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew_after_quiet() {
        let config = BackoffConfig {
            first: Duration::ZERO,
            second: Duration::from_secs(1),
            most: Duration::from_secs(5),
            forgets_after: Duration::from_secs(100),
        };
        let mut backoff = Backoff::new(config);
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..5 {
            let at = backoff.failed(now);
            waits.push((at - now).as_secs());
            now = at;
        }
        assert_eq!(waits, [0, 1, 2, 4, 5]);
        now += config.forgets_after;
        assert_eq!(backoff.failed(now) - now, config.first);
    }
}
