//! The arguments of `ardea bench recovery`.

use std::time::Duration;

use ardea_bench::recovery::{self, RecoveryParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::Context;
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct RecoveryBenchArgs {
    /// Number of containers of the job
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    containers: u32,
    /// Records per second
    #[arg(long, value_name = "N", value_parser = count, default_value = "100000")]
    rate: u64,
    /// Running time of the job before a worker is killed
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "3s")]
    warmup: Duration,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
pub fn run(args: &RecoveryBenchArgs, context: &Context) -> Result<(), Failure> {
    let params = RecoveryParams {
        containers: args.containers,
        rate: args.rate,
        warmup: args.warmup,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        recovery::run(&params, progress)
    })
}
