//! The arguments of `ardea bench stages`.

use std::time::Duration;

use ardea_bench::stages::{self, StagesParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct StagesBenchArgs {
    /// Number of stages that a payment passes through; every thirtieth is keyed by the account
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..))]
    stages: u32,
    /// Payments per second
    #[arg(long, value_name = "N", value_parser = count, default_value = "1000")]
    rate: u64,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20s")]
    duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    warmup: Duration,
    /// Number of cooperative threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Time for which an idle thread polls before it sleeps: more gives steadier latency, and uses
    /// up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
    /// Disable the fusion of stages into tasklets, to measure its gain
    #[arg(long)]
    no_fuse: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
pub fn run(args: &StagesBenchArgs, context: &Context) -> Result<(), Failure> {
    check_threads(args.threads)?;
    let params = StagesParams {
        stages: args.stages,
        rate: args.rate,
        duration: args.duration,
        warmup: args.warmup,
        threads: args.threads,
        spin: args.spin,
        fuse: !args.no_fuse,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        stages::run(&params, progress)
    })
}
