//! Which record user code was on when it panicked.

use std::any::Any;
use std::cell::Cell;

thread_local! {
    static FAILED_INDEX: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Follows a loop over a batch, so that a panic in it can be laid to the record at hand.
///
/// Costs nothing while all goes well: the index is written out only while unwinding.
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
    /// At the first record of a batch.
    #[inline]
    pub fn new() -> Self {
        RecordGuard { index: 0 }
    }

    /// On to the next record.
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

/// The message of a panic, given what `catch_unwind` returned.
pub fn panic_message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "(no message)"
    }
}

/// The index in its batch of the record on which this thread's last panic happened, once.
pub fn take_failed_index() -> Option<usize> {
    FAILED_INDEX.take()
}
