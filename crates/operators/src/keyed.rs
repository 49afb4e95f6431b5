//! Operators that remember something for each key.

mod changes;
mod context;
mod distinct;
mod kept;
mod logic;
mod stateful_map;
mod states;
mod timers;

pub use context::{KeyedContext, TimerKind};
pub use distinct::DistinctP;
pub use kept::KeptAs;
pub use logic::{KeyedLogic, flat_map_stateful, map_stateful};
pub use stateful_map::StatefulMapP;

pub(crate) use kept::{put_time, unless_kept};
pub(crate) use states::KeyedStates;
pub(crate) use timers::TimerSet;
