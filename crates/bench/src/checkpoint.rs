//! Cost of a checkpoint of a large state of which a small part has changed, and its effect on
//! record latency.

mod params;
mod run;

pub use params::CheckpointParams;
pub use run::run;
