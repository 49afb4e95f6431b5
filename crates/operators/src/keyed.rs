//! Operators with a value per key: user code with state and timers, and deduplication.

mod context;
mod distinct;
mod logic;
mod stateful_map;

#[cfg(test)]
mod on_disk_tests;

pub use context::KeyedContext;
pub use distinct::DistinctP;
pub use logic::{KeyedLogic, flat_map_stateful, map_stateful};
pub use stateful_map::StatefulMapP;
