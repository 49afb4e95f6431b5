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
//! * `slice_assigner`: adds records to `open_slices` and late ones to their output;
//! * `sliding_aggregator`: closes slices, with `frozen_slices` and the `running` aggregate (totals,
//!   or `two_stacks` where the aggregate does not deduct);
//! * `revisions`, `early`: revised and early results;
//! * `window_state`: the checkpointed state, with `partition_watermarks` and `partition_lag`;
//!   `delta_*`: incremental snapshots of slices; `restored_slices`: rebuilds slices;
//! * `slice_combine`: the first of two stages;
//! * `sessions`, `session`: session windows; `change`: the results that a session's result
//!   replaces.

mod calendar;
mod change;
mod delta_blocks;
mod delta_buffer;
mod delta_format;
mod delta_index;
mod delta_keys;
mod delta_writer;
mod dropped_slices;
mod early;
mod frozen_slices;
mod open_slices;
mod partition_lag;
mod partition_watermarks;
mod restored_slices;
mod result;
mod revisions;
mod running;
mod session;
mod sessions;
mod slice_assigner;
mod slice_combine;
mod sliding;
mod sliding_aggregator;
mod spec;
mod time_zone;
mod trigger;
mod two_stacks;
mod window_state;

#[cfg(test)]
mod contract_tests;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod sliding_tests;
#[cfg(test)]
pub(crate) mod test_driver;

pub use calendar::{CalendarUnit, Weekday};
pub use change::{EmitChanges, EmitResults, SessionOutput, WindowChange};
pub use result::{Firing, WindowResult};
pub use session::SessionWindowP;
pub use sessions::SessionSpec;
pub use slice_combine::SliceCombineP;
pub use sliding::SlidingWindowP;
pub use spec::WindowSpec;
pub use time_zone::ZoneName;
pub use trigger::{Decision, EarlyFiring, NoEarly, Trigger};

use result::result_time;
