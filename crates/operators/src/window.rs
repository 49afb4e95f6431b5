//! Event-time windows: tumbling, sliding and session.
//!
//! Tumbling and sliding windows ([`SlidingWindowP`]) are stored as slices, each as long as the
//! slide. From a record to a result:
//!
//! ```text
//!  records ──intake──▶ open slices ──the watermark closes one──▶ frozen slices ──▶ running aggregate ──▶ results
//!                      key → acc                                 (slot, acc)        enter / leave
//! ```
//!
//! * `spec`: the window definition and the arithmetic of slices; `calendar`, `time_zone`: slices
//!   that are local days, weeks and months;
//! * `slice_assigner`: adds records to open slices and late ones to their output;
//! * `sliding`: closes slices, and keeps the running aggregate; also the first of two stages;
//! * `triggers`: early results;
//! * `state`: open and frozen slices, and their checkpoints; watermarks by partition;
//! * `session`: session windows.

mod calendar;
mod result;
mod session;
mod slice_assigner;
mod sliding;
mod spec;
mod state;
mod time_zone;
mod triggers;

#[cfg(test)]
mod contract_tests;
#[cfg(test)]
pub(crate) mod test_driver;

pub use calendar::{CalendarUnit, Weekday};
pub use result::{Firing, WindowResult};
pub use session::{
    EmitChanges, EmitResults, SessionOutput, SessionSpec, SessionWindowP, WindowChange,
};
pub use sliding::{SliceCombineP, SlidingWindowP};
pub use spec::{Slice, WindowSpec};
pub use time_zone::ZoneName;
pub use triggers::{Decision, EarlyFiring, NoEarly, Trigger};
