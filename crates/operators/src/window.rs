//! Windows of event time: tumbling, sliding and session.
//!
//! Tumbling and sliding windows ([`SlidingWindowP`]) are kept as slices, each as long as the slide. From a record to a
//! result:
//!
//! ```text
//!  records ──intake──▶ open slices ──the watermark closes one──▶ frozen slices ──▶ running aggregate ──▶ results
//!                      key → acc                                 (slot, acc)        enter / leave
//! ```
//!
//! * `spec`: which windows there are, and the arithmetic of slices; `calendar`, `time_zone`: slices that are local days, weeks
//!   and months;
//! * `intake`: records into `open_slices`, late ones to their output;
//! * `slider`: the machine that closes slices, with `frozen_slices` and the `running` aggregate (totals, or `two_stacks`
//!   where the aggregate does not deduct);
//! * `revisions`, `early`: results out of turn;
//! * `kept_slices`, `told`: what survives, slices and how far time had come; slices in `packs`, which a `pack_ledger` keeps account of, and
//!   from which `restored_slices` makes them again; `lag`: partitions that had come less far than others;
//! * `slice_combine`: the first of two stages;
//! * `sessions`, `session`: windows that end when a key has been silent for a while; `change`: which results they replace.

mod calendar;
mod change;
mod early;
mod frozen_slices;
mod gone_slices;
mod intake;
mod kept_slices;
mod lag;
mod open_slices;
mod pack_buffer;
mod pack_call;
mod pack_form;
mod pack_keys;
mod pack_ledger;
mod packs;
mod restored_slices;
mod result;
mod revisions;
mod running;
mod session;
mod sessions;
mod slice_combine;
mod slider;
mod sliding;
mod spec;
mod time_zone;
mod told;
mod trigger;
mod two_stacks;

#[cfg(test)]
mod contract_tests;
#[cfg(test)]
pub(crate) mod drive;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod sliding_tests;

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
