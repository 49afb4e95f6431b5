//! Records that count their live instances.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The number of live [`Counted`] records of one test. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct LiveCount(Arc<AtomicI64>);

impl LiveCount {
    /// Creates a count of zero.
    pub fn new() -> Self {
        LiveCount::default()
    }

    /// Returns the number of live records; negative only if records were dropped twice.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A value that is counted until it is dropped, so that a test detects whether a processor leaks
/// records.
///
/// Compares, hashes and prints like its value; each clone is counted separately.
///
/// ```
/// use ardea_testkit::{Counted, LiveCount};
///
/// let live = LiveCount::new();
/// let one = Counted::new(7, &live);
/// let other = one.clone();
/// assert_eq!((live.get(), *other), (2, 7));
/// drop((one, other));
/// assert_eq!(live.get(), 0);
/// ```
pub struct Counted<T> {
    value: T,
    live: LiveCount,
}

impl<T> Counted<T> {
    /// Counts `value` in `live` until it is dropped.
    pub fn new(value: T, live: &LiveCount) -> Self {
        live.0.fetch_add(1, Ordering::SeqCst);
        Counted {
            value,
            live: live.clone(),
        }
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.live.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T: Clone> Clone for Counted<T> {
    fn clone(&self) -> Self {
        Counted::new(self.value.clone(), &self.live)
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Counted<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Counted<T> {}

impl<T: PartialOrd> PartialOrd for Counted<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

impl<T: Ord> Ord for Counted<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.value.cmp(&other.value)
    }
}

impl<T: std::hash::Hash> std::hash::Hash for Counted<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}
