//! NEXMark: throughput with `--max`, latency at a rate without.

mod load;
mod params;
mod queries;
mod rows;
mod run;
mod running;

pub use params::NexmarkParams;
pub use run::run;
