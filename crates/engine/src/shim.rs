//! The choice between the standard library and the model checker.
//!
//! Lock-free shared data uses these names: with `--cfg loom` loom records each access and explores
//! the interleavings (see `model.rs`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// A fence between a write and a read that are both sequentially consistent.
///
/// No effect in an ordinary build, where such accesses are ordered. Loom treats them as acquire and
/// release only, but models fences exactly, so there it is a fence.
#[inline(always)]
pub(crate) fn in_sequence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
