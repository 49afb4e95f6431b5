//! `ardea bench latency`: its options.

use std::time::Duration;

use ardea_bench::latency::{self, LatencyParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct LatencyBenchArgs {
    /// How many steps a tuple passes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    steps: u32,
    /// Tuples a second
    #[arg(long, value_name = "N", value_parser = count, default_value = "1000")]
    rate: u64,
    /// For how long each step is busy with a tuple
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    work: Duration,
    /// Processes: containers of a cluster on this machine, which is made for the bench; steps that follow each other are in different ones
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    containers: u32,
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
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
pub fn run(args: &LatencyBenchArgs, context: &Context) -> Result<(), Failure> {
    check_threads(args.threads)?;
    let params = LatencyParams {
        steps: args.steps,
        rate: args.rate,
        work: args.work,
        containers: args.containers,
        duration: args.duration,
        warmup: args.warmup,
        threads: args.threads,
        spin: args.spin,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        latency::run(&params, progress)
    })
}
