//! Early results of windows.
//!
//! * `trigger`: the triggers that a program chooses from or writes;
//! * `early`: their state by key, and the clock that wakes them.

pub(super) mod early;
mod trigger;

pub use trigger::{Decision, EarlyFiring, NoEarly, Trigger};
