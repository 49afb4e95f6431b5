//! Silence for panics of user code where an error has been reported already.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Does what may panic where nothing can be done about it any more: closing and dropping what the user made.
///
/// The panic hook has printed it by then. Two panics at once, as of two records of one batch whose destructors both panic,
/// abort the process: Rust has it so.
pub(crate) fn quietly(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        // Its destructor is the user's as well.
        mem::forget(payload);
    }
}
