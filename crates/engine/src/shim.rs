//! The one place that chooses between the standard library and the model checker.
//!
//! What threads share without a lock goes through these names: with `--cfg loom` loom records each access and explores the
//! interleavings (see `model.rs`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Stands between a write and a read that are both sequentially consistent.
///
/// Nothing in an ordinary build, where they order themselves. Loom takes such accesses for acquire and release only, but
/// a fence at its word: so there it is one.
#[inline(always)]
pub(crate) fn in_sequence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
