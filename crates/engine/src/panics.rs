//! Suppression of user panics after an error has been reported.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code that may panic where the panic has no further effect: closing and dropping user
/// values.
///
/// The panic hook has printed the panic. Two panics at once, as of two records of one batch whose
/// destructors both panic, abort the process.
pub(crate) fn quietly(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        // Its destructor is user code as well.
        mem::forget(payload);
    }
}
