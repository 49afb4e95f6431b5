//! How long results are missed when a worker of a job with much state is killed, and whether any is lost or comes twice.

mod params;
mod run;

pub use params::FailoverParams;
pub(crate) use run::AccountsLoad;
pub use run::run;
