//! The arguments of `ardea bench rescale`.

use std::time::Duration;

use ardea_bench::rescale::{self, RescaleParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::Context;
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct RescaleBenchArgs {
    /// Number of workers at the start and at the end
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    from: u32,
    /// Number of workers in between
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    to: u32,
    /// Records per second
    #[arg(long, value_name = "N", value_parser = count, default_value = "500000")]
    rate: u64,
    /// Number of keys
    #[arg(long, value_name = "N", value_parser = count, default_value = "10000")]
    keys: u64,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "3s")]
    warmup: Duration,
    /// Duration of the measurement; the job is rescaled after a third, and back after two thirds
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "15s")]
    duration: Duration,
    /// Checkpoint interval
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    checkpoint_interval: Duration,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
pub fn run(args: &RescaleBenchArgs, context: &Context) -> Result<(), Failure> {
    let params = RescaleParams {
        from: args.from,
        to: args.to,
        rate: args.rate,
        keys: args.keys,
        warmup: args.warmup,
        duration: args.duration,
        checkpoint_interval: args.checkpoint_interval,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        rescale::run(&params, progress)
    })
}
