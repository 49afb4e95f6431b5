//! What panics of user code become: an error with a message, or silence where an error has been told already.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic said.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "(no message)"
    }
}

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
