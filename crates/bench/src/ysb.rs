//! The Yahoo streaming benchmark: ad views, joined with their campaigns and counted by campaign in
//! windows. It runs in this process, or on a cluster of which a part may be killed.
//!
//! After Chintapalli and others, "Benchmarking Streaming Computation Engines" (2016). The join
//! table is in memory. The source generates the events, so that the engine is measured without
//! external servers; or the events are in Kafka, and the results in Redis.
//!
//! * `events`: the events; `json`: the events as JSON texts, and their decoding;
//! * `ads`: the job, and its expected output;
//! * `servers`: Kafka and Redis, with the features `kafka` and `redis`;
//! * `run`: a run on a cluster, and the figures; `local`: a run in this process;
//! * `cdf`: the distribution of latencies as a file.

mod ads;
mod cdf;
mod events;
mod json;
mod local;
mod params;
mod run;
#[cfg(all(feature = "kafka", feature = "redis"))]
mod servers;

pub(crate) use ads::AdsLoad;
pub use ads::{YsbCombine, YsbInput};
pub use params::{YsbParams, YsbVictim};
pub use run::run;
