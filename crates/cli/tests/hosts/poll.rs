//! Polling for conditions.

use std::thread;
use std::time::{Duration, Instant};

/// The poll interval.
const LOOK: Duration = Duration::from_millis(20);

/// Polls until `look` returns a value.
///
/// # Panics
/// If that takes longer than `seconds` seconds; the message contains `what`.
pub fn until<T>(what: &str, seconds: u64, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {seconds} s: {what}");
        thread::park_timeout(LOOK);
    }
}

/// Polls until `look` returns true.
///
/// # Panics
/// As [`until`].
pub fn until_true(what: &str, seconds: u64, mut look: impl FnMut() -> bool) {
    until(what, seconds, || look().then_some(()));
}

/// Waits for `seconds` seconds, during a deliberate fault.
pub fn pass(seconds: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}
