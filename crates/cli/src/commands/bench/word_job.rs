//! The options shared by the word count benchmarks.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::wordcount::WordcountParams;

use crate::args::{count, duration};
use crate::context::check_threads;
use crate::failure::Failure;

/// The word source, the parallelism, and the processes.
#[derive(clap::Args, Debug)]
pub struct WordJobArgs {
    /// Number of distinct words to generate
    #[arg(long, value_name = "N", value_parser = count, default_value = "450000")]
    words: u64,
    /// File to read words from, one per line, instead of generating them
    #[arg(long, value_name = "FILE", conflicts_with = "words")]
    words_file: Option<PathBuf>,
    /// Number of spouts, and of bolts (default: one per container)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    parallelism: Option<u32>,
    /// Number of processes; more than one are containers of a temporary cluster on this machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    containers: u32,
    /// Enable acks: track every tuple until it has been counted
    #[arg(long)]
    acks: bool,
    /// Maximum number of pending tuples per spout, with acks (default: the capacity of the queues)
    #[arg(long, value_name = "N", requires = "acks")]
    max_pending: Option<NonZeroUsize>,
    /// Number of cooperative threads per container
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Time for which an idle thread polls before it sleeps: more gives steadier latency, and uses
    /// up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
}

impl WordJobArgs {
    /// Returns the benchmark's parameters with these options, and defaults for the others.
    pub fn params(&self) -> Result<WordcountParams, Failure> {
        check_threads(self.threads)?;
        Ok(WordcountParams {
            words: usize::try_from(self.words).unwrap_or(usize::MAX),
            words_file: self.words_file.clone(),
            parallelism: self.parallelism,
            containers: self.containers,
            threads: self.threads,
            acks: self.acks,
            max_pending: self.max_pending,
            spin: self.spin,
            ..WordcountParams::default()
        })
    }
}
