//! `ardea bench rescale`: its options.

use std::time::Duration;

use ardea_bench::rescale::{self, RescaleParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::Context;
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct RescaleBenchArgs {
    /// Workers at first, and in the end
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    from: u32,
    /// Workers in between
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    to: u32,
    /// Records a second
    #[arg(long, value_name = "N", value_parser = count, default_value = "500000")]
    rate: u64,
    /// Keys that are counted
    #[arg(long, value_name = "N", value_parser = count, default_value = "10000")]
    keys: u64,
    /// How long the job runs before anything counts
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "3s")]
    warmup: Duration,
    /// How long it runs then: it is rescaled after a third, and back after two
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "15s")]
    duration: Duration,
    /// How often a snapshot is taken
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    snapshot_interval: Duration,
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
pub fn run(args: &RescaleBenchArgs, context: &Context) -> Result<(), Failure> {
    let params = RescaleParams {
        from: args.from,
        to: args.to,
        rate: args.rate,
        keys: args.keys,
        warmup: args.warmup,
        duration: args.duration,
        snapshot_interval: args.snapshot_interval,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        rescale::run(&params, progress)
    })
}
