//! How long an operation still waits, and how often it tries again.

use std::time::{Duration, Instant};

/// The first pause between two attempts; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// For implementations: the patience of one operation, with pauses that grow between its attempts.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
/// # runtime.block_on(async {
/// use ardea_metastore::Patience;
/// use std::time::Duration;
///
/// let mut patience = Patience::new(Duration::from_millis(60));
/// let mut attempts = 1;
/// while patience.pause().await {
///     attempts += 1;
/// }
/// assert!(attempts > 1);
/// # });
/// ```
#[derive(Debug)]
pub struct Patience {
    deadline: Instant,
    pause: Duration,
}

impl Patience {
    /// That waits for so long, from now on.
    pub fn new(patience: Duration) -> Self {
        Patience {
            deadline: Instant::now() + patience,
            pause: FIRST_PAUSE,
        }
    }

    /// When it ends.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How long it lasts yet.
    pub fn rest(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Pauses before the next attempt; `false`, at once, if there is no patience left for one.
    pub async fn pause(&mut self) -> bool {
        let pause = self.next_pause();
        if pause >= self.rest() {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }

    /// Pauses before the next attempt of something that is never given up.
    pub async fn pause_again(&mut self) {
        tokio::time::sleep(self.next_pause()).await;
    }

    fn next_pause(&mut self) -> Duration {
        // Half of the pause is drawn, so that many who lost one server don't come back in step.
        let pause = self.pause / 2 + self.pause.mul_f64(dice() / 2.0);
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
        pause
    }

    /// Something went well: the next pause is short again.
    pub fn refresh(&mut self) {
        self.pause = FIRST_PAUSE;
    }
}

/// A number from 0 to 1, different in each process and at each call.
fn dice() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let drawn = RandomState::new().hash_one(0u8);
    f64::from((drawn >> 40) as u32) / f64::from(1u32 << 24)
}
