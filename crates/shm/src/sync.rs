//! The selection of the standard library's atomics or the model checker's.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use crate::layout::{MAX_PRODUCERS, RingLayout};

/// The two futexes of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Futex {
    /// The consumer sleeps here until a message arrives.
    Arrivals,
    /// Producers sleep here until slots are released.
    Releases,
}

/// The producers' numbers.
pub(crate) fn producers() -> std::ops::Range<u8> {
    0..MAX_PRODUCERS as u8
}

/// Returns true if `at .. at + length` lies within the slots.
pub(crate) fn is_within(geometry: RingLayout, at: usize, length: usize) -> bool {
    let slots = geometry.bytes() - geometry.slots();
    at <= slots && length <= slots - at
}
