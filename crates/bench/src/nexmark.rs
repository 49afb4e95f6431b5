//! NEXMark: throughput with `--max`, latency at a rate without.

mod load;
mod meter;
mod params;
mod queries;
mod rows;
mod run;

pub use params::{BenchQuery, NexmarkParams};
pub use run::run;
