//! The selection of the standard library or the model checker.
//!
//! Everything shared between threads uses these names. An ordinary build has the types of `std`;
//! with `--cfg loom` it has those of loom, which records each access and explores the
//! interleavings.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

#[cfg(not(loom))]
pub(crate) use self::cell::UnsafeCell;
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

#[cfg(not(loom))]
mod cell {
    /// `std`'s cell with loom's interface: a closure marks where an access begins
    /// and ends.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Wraps `value`.
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Calls `access` with a pointer for reading and writing. The call itself is safe; the use
        /// of the pointer is the responsibility of `access`.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}
