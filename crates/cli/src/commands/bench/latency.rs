//! The arguments of `ardea bench latency`.

use std::time::Duration;

use ardea_bench::latency::{self, LatencyParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct LatencyBenchArgs {
    /// Number of steps that a tuple passes through
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    steps: u32,
    /// Tuples per second
    #[arg(long, value_name = "N", value_parser = count, default_value = "1000")]
    rate: u64,
    /// Processing time of a tuple in each step
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    work: Duration,
    /// Number of processes: containers of a temporary cluster on this machine; consecutive steps
    /// are in different ones
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    containers: u32,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "3s")]
    warmup: Duration,
    /// Number of cooperative threads per container
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Time for which an idle thread polls before it sleeps: more gives steadier latency, and uses
    /// up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
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
