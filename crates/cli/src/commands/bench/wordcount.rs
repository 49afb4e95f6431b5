//! The arguments of `ardea bench wordcount`.

use std::time::Duration;

use ardea_bench::wordcount::{self, Sweep, WordcountParams};
use clap::ArgGroup;

use super::word_job::WordJobArgs;
use super::{Repeat, repeat, sweep};
use crate::args::{count, duration};
use crate::context::Context;
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("pace").required(true).args(["rate", "max", "sweep"]).multiple(true)))]
pub struct WordcountBenchArgs {
    #[command(flatten)]
    job: WordJobArgs,
    /// Tuples per second, over all spouts: measures latency
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "max")]
    rate: Option<u64>,
    /// Run as fast as possible: measures throughput
    #[arg(long)]
    max: bool,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "3s")]
    warmup: Duration,
    /// Skip the plain loops that are used for comparison
    #[arg(long)]
    no_baseline: bool,
    /// Measure each of these numbers of spouts; without --rate or --max, first as fast as possible
    /// for throughput, then at half the rate reached for latency
    #[arg(long, value_name = "N,N…", value_delimiter = ',', conflicts_with_all = ["parallelism", "repeat"],
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    sweep: Vec<u32>,
    /// Measure each number of spouts of a sweep both without and with acks
    #[arg(long, requires = "sweep", conflicts_with = "acks")]
    both: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
pub fn run(args: &WordcountBenchArgs, context: &Context) -> Result<(), Failure> {
    let params = WordcountParams {
        rate: args.rate,
        duration: args.duration,
        warmup: args.warmup,
        baseline: !args.no_baseline,
        ..args.job.params()?
    };
    if !args.sweep.is_empty() {
        let swept = Sweep {
            acks: match args.both {
                true => vec![false, true],
                false => vec![params.acks],
            },
            base: params,
            parallelisms: args.sweep.clone(),
        };
        return sweep::run(&swept, args.rate.is_none() && !args.max, context);
    }
    repeat::run(args.repeat.repeat, context, |progress| {
        wordcount::run(&params, progress)
    })
}
