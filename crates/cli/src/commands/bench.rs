//! `ardea bench`: measures, and prints one JSON object a run.

mod nexmark;
mod repeat;
mod wordcount;

pub use nexmark::{NexmarkBenchArgs, run as nexmark};
pub use wordcount::{WordcountBenchArgs, run as wordcount};
