//! NEXMark: throughput with `--max`, latency at a rate without.

mod params;
mod queries;
mod rows;
mod run;
mod spread;

pub use params::NexmarkParams;
pub use run::run;
pub(crate) use spread::QueryLoad;
