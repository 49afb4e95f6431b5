//! Time without results after a worker of a job with a large state is killed, and results lost or
//! duplicated by it.

mod params;
mod run;

pub use params::FailoverParams;
pub(crate) use run::AccountsLoad;
pub use run::run;
