//! Word count: random words, counted by a bolt, as a topology.

mod ablation;
mod components;
mod isolated;
mod params;
mod peer;
mod run;
mod soak;
pub(crate) mod spread;
mod sweep;
mod table;
mod words;

pub use ablation::ablation;
pub use isolated::run_bolt;
pub use params::WordcountParams;
pub use peer::{run_peer, write_sweep};
pub use run::run;
pub use soak::{SoakParams, soak};
pub use sweep::{Sweep, at_half_of};
pub(crate) use words::Words;
