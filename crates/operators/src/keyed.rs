//! Operators that remember something for each key.

mod context;
mod distinct;
mod logic;
mod stateful_map;
mod states;
mod timers;

pub use context::{KeyedContext, TimerKind};
pub use distinct::DistinctP;
pub use logic::{KeyedLogic, flat_map_stateful, map_stateful};
pub use stateful_map::StatefulMapP;

pub(crate) use states::KeyedStates;
pub(crate) use timers::TimerSet;
