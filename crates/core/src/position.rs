//! The record that user code was processing when it panicked.

use std::any::Any;
use std::cell::Cell;

thread_local! {
    static FAILED_INDEX: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A guard that tracks a loop over a batch, so that a panic can be attributed to a record.
///
/// The index is stored only while unwinding, so the guard costs nothing otherwise.
///
/// ```
/// use ardea_core::{RecordGuard, take_failed_index};
///
/// let outcome = std::panic::catch_unwind(|| {
///     let mut guard = RecordGuard::new();
///     for record in [1, 2, 0, 4] {
///         assert!(10 / record > 0);
///         guard.advance();
///     }
/// });
/// assert!(outcome.is_err());
/// assert_eq!(take_failed_index(), Some(2));
/// ```
#[derive(Debug, Default)]
pub struct RecordGuard {
    index: usize,
}

impl RecordGuard {
    /// Creates a guard at the first record of a batch.
    #[inline]
    pub fn new() -> Self {
        RecordGuard { index: 0 }
    }

    /// Advances to the next record.
    #[inline]
    pub fn advance(&mut self) {
        self.index += 1;
    }
}

impl Drop for RecordGuard {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            FAILED_INDEX.set(Some(self.index));
        }
    }
}

/// Returns the message of a panic payload, as returned by `catch_unwind`.
pub fn panic_message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "(no message)"
    }
}

/// Takes the index, in its batch, of the record on which this thread's last panic happened.
pub fn take_failed_index() -> Option<usize> {
    FAILED_INDEX.take()
}
