//! Retries with a deadline and exponential backoff.

use std::time::{Duration, Instant};

/// Pause before the first retry; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Maximum pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// For implementations: the deadline of one operation, with growing pauses between its attempts.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
/// # runtime.block_on(async {
/// use ardea_metastore::RetryDeadline;
/// use std::time::Duration;
///
/// let mut patience = RetryDeadline::new(Duration::from_millis(60));
/// let mut attempts = 1;
/// while patience.pause().await {
///     attempts += 1;
/// }
/// assert!(attempts > 1);
/// # });
/// ```
#[derive(Debug)]
pub struct RetryDeadline {
    deadline: Instant,
    pause: Duration,
}

impl RetryDeadline {
    /// Creates a deadline that ends after the time `patience`.
    pub fn new(patience: Duration) -> Self {
        RetryDeadline {
            deadline: Instant::now() + patience,
            pause: FIRST_PAUSE,
        }
    }

    /// Returns the deadline.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the remaining time.
    pub fn rest(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Pauses before the next attempt; returns false at once if the pause would exceed the
    /// deadline.
    pub async fn pause(&mut self) -> bool {
        let pause = self.next_pause();
        if pause >= self.rest() {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }

    /// Pauses before the next attempt, regardless of the deadline.
    pub async fn pause_ignoring_deadline(&mut self) {
        tokio::time::sleep(self.next_pause()).await;
    }

    fn next_pause(&mut self) -> Duration {
        // Half of the pause is random, so that many clients of a failed server don't retry in step.
        let pause = self.pause / 2 + self.pause.mul_f64(random_fraction() / 2.0);
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
        pause
    }

    /// Resets the pause after a success.
    pub fn reset(&mut self) {
        self.pause = FIRST_PAUSE;
    }
}

/// Returns a random number from 0 to 1.
fn random_fraction() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let drawn = RandomState::new().hash_one(0u8);
    f64::from((drawn >> 40) as u32) / f64::from(1u32 << 24)
}
