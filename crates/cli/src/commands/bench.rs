//! `ardea bench`: measures, and prints one JSON object a run.

mod nexmark;
mod repeat;

pub use nexmark::{NexmarkBenchArgs, run as nexmark};
