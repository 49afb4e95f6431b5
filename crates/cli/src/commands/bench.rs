//! `ardea bench`: measures, and prints one JSON object a run.

mod exchange;
mod forward;
mod nexmark;
mod repeat;

pub use exchange::{ExchangeBenchArgs, run as exchange};
pub use forward::{ForwardBenchArgs, run as forward};
pub use nexmark::{NexmarkBenchArgs, run as nexmark};
