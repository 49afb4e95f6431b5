//! Waking an instance from a thread that its processor has started.

use std::fmt;
use std::sync::Arc;

/// A handle that wakes one instance: its `complete` (sources) or `on_wake` is called soon after.
///
/// Cheap to clone, callable from any thread, never blocks; waking twice is like waking once.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// Creates a waker that calls `wake`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Waker(Arc::new(wake))
    }

    /// Creates a waker without effect, for tests.
    pub fn none() -> Self {
        Waker::new(|| {})
    }

    /// Wakes the instance.
    #[inline]
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
