//! Waiting for what comes about by itself.

use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Looks until there is something.
///
/// # Panics
/// If that takes longer than so many seconds; `what` says what has not come about.
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

/// Looks until it is so.
///
/// # Panics
/// As [`until`].
pub fn until_true(what: &str, seconds: u64, mut look: impl FnMut() -> bool) {
    until(what, seconds, || look().then_some(()));
}

/// Lets time pass, in which something is out of order on purpose.
pub fn pass(seconds: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}
