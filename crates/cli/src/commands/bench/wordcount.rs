//! `ardea bench wordcount`: its options.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::wordcount::{self, Sweep, WordcountParams};
use clap::ArgGroup;

use super::{Repeat, repeat, sweep};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("pace").required(true).args(["rate", "max", "sweep"]).multiple(true)))]
pub struct WordcountBenchArgs {
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
    /// Tuples a second, over all spouts: measures latency
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "max")]
    rate: Option<u64>,
    /// As fast as possible: measures throughput
    #[arg(long)]
    max: bool,
    /// How many tuples each spout may have pending, with acks; as many as the queues hold unless told
    #[arg(long, value_name = "N", requires = "acks")]
    max_pending: Option<NonZeroUsize>,
    /// How long is measured
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    duration: Duration,
    /// How long runs before that
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "3s")]
    warmup: Duration,
    /// Cooperative threads, of each container
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// How long an idle thread looks for work before it sleeps: more is steadier, and burns up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
    /// Don't run the plain loops to compare with
    #[arg(long)]
    no_baseline: bool,
    /// Measure each of these numbers of spouts; without --rate or --max each as fast as possible for throughput, and then at half
    /// the rate that it reached for latency
    #[arg(long, value_name = "N,N…", value_delimiter = ',', conflicts_with_all = ["parallelism", "repeat"],
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    sweep: Vec<u32>,
    /// Measure each number of spouts of a sweep without acks and with
    #[arg(long, requires = "sweep", conflicts_with = "acks")]
    both: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
pub fn run(args: &WordcountBenchArgs, context: &Context) -> Result<(), Failure> {
    check_threads(args.threads)?;
    let params = WordcountParams {
        words: usize::try_from(args.words).unwrap_or(usize::MAX),
        words_file: args.words_file.clone(),
        parallelism: args.parallelism,
        containers: args.containers,
        threads: args.threads,
        acks: args.acks,
        rate: args.rate,
        max_pending: args.max_pending,
        duration: args.duration,
        warmup: args.warmup,
        spin: args.spin,
        baseline: !args.no_baseline,
    };
    if !args.sweep.is_empty() {
        let swept = Sweep {
            base: params,
            parallelisms: args.sweep.clone(),
            acks: match args.both {
                true => vec![false, true],
                false => vec![args.acks],
            },
        };
        return sweep::run(&swept, args.rate.is_none() && !args.max, context);
    }
    repeat::run(args.repeat.repeat, context, |progress| {
        wordcount::run(&params, progress)
    })
}
