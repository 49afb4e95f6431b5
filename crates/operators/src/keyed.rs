//! Operators that remember something for each key.

mod aside;
mod away;
mod changes;
mod cold;
mod cold_entry;
mod context;
mod cut_at_hand;
mod cut_log;
mod desk;
mod distinct;
mod kept;
mod kept_timers;
mod lives;
mod logic;
mod relief;
mod stamps;
mod stateful_map;
mod states;
mod timers;

#[cfg(test)]
mod on_disk_tests;
#[cfg(test)]
pub(crate) mod test_codecs;
#[cfg(test)]
mod test_disk;

pub use context::{KeyedContext, TimerKind};
pub use distinct::DistinctP;
pub use kept::KeptAs;
pub use logic::{KeyedLogic, flat_map_stateful, map_stateful};
pub use stateful_map::StatefulMapP;

pub(crate) use aside::Aside;
pub(crate) use changes::Changes;
pub(crate) use cold_entry::{Due, Dues};
pub(crate) use cut_log::{CutAt, CutLog};
pub(crate) use kept::{
    KeptPart, Rest, cut_short, put_part, put_time, put_times, twice, unless_kept, write_removed,
};
pub(crate) use stamps::{Fresh, Stamps, Sweep, Touch};
pub(crate) use states::{KeyedStates, PLACES_PER_CALL, STATE};
pub(crate) use timers::TimerSet;
