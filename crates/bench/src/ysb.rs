//! The Yahoo streaming benchmark: ad views, joined with their campaigns and counted by campaign in
//! windows. It runs on a cluster of which a part may be killed.
//!
//! After Chintapalli and others, "Benchmarking Streaming Computation Engines" (2016). The join
//! table is in memory, and the source generates the events: this measures the engine without
//! external servers.

mod ads;
mod params;
mod run;

pub(crate) use ads::AdsLoad;
pub use params::{YsbParams, YsbVictim};
pub use run::run;
