//! The Yahoo streaming benchmark: views of advertisements, joined with the campaigns that they belong to and counted by campaign in
//! windows, on a cluster of which something may be killed.
//!
//! After Chintapalli and others, "Benchmarking Streaming Computation Engines" (2016). The table that joins is in memory here, and events
//! are made where they are read: what is measured is the engine, and not a server beside it.

mod ads;
mod params;
mod run;

pub(crate) use ads::AdsLoad;
pub use params::{YsbParams, YsbVictim};
pub use run::run;
