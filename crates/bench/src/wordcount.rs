//! Word count: random words, counted by a bolt, as a topology.

mod components;
mod params;
mod run;
pub(crate) mod spread;
mod table;
mod words;

pub use params::WordcountParams;
pub use run::run;
