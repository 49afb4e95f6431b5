//! The options of the benches that count words: what runs, and where.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::wordcount::WordcountParams;

use crate::args::{count, duration};
use crate::context::check_threads;
use crate::failure::Failure;

/// What is counted, by how many, in how many processes.
#[derive(clap::Args, Debug)]
pub struct WordJobArgs {
    /// How many distinct words are generated
    #[arg(long, value_name = "N", value_parser = count, default_value = "450000")]
    words: u64,
    /// Take the words from this file, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "words")]
    words_file: Option<PathBuf>,
    /// Spouts, and as many bolts; one for each container unless told
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    parallelism: Option<u32>,
    /// Processes; more than one are containers of a cluster on this machine, which is made for the bench
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    containers: u32,
    /// Follow every tuple until it has been counted
    #[arg(long)]
    acks: bool,
    /// How many tuples each spout may have pending, with acks; as many as the queues hold unless told
    #[arg(long, value_name = "N", requires = "acks")]
    max_pending: Option<NonZeroUsize>,
    /// Cooperative threads, of each container
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// How long an idle thread looks for work before it sleeps: more is steadier, and burns up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
}

impl WordJobArgs {
    /// The parameters that are asked for here; the others are what they are unless told.
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
