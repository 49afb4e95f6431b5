//! The arguments of `ardea bench forward`.

use std::time::Duration;

use ardea_bench::forward::{self, ForwardParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::Context;
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct ForwardBenchArgs {
    /// Maximum payload of a frame in bytes; it is filled with as many words as fit
    #[arg(long, value_name = "N", value_parser = count, default_value = "16384")]
    bytes: u64,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    warmup: Duration,
    /// Copy each payload, to measure the gain of leaving it in place
    #[arg(long)]
    no_in_place: bool,
    /// Allocate memory for every read, to measure the gain of reusing it
    #[arg(long)]
    no_pools: bool,
    /// Decode and re-encode each tuple, to measure the gain of not doing so
    #[arg(long)]
    no_lazy: bool,
    /// Measure with all optimizations, without each one, and without any
    #[arg(long, conflicts_with_all = ["no_in_place", "no_pools", "no_lazy"])]
    ablation: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
pub fn run(args: &ForwardBenchArgs, context: &Context) -> Result<(), Failure> {
    let params = ForwardParams {
        bytes: usize::try_from(args.bytes).unwrap_or(usize::MAX),
        duration: args.duration,
        warmup: args.warmup,
        in_place: !args.no_in_place,
        pools: !args.no_pools,
        lazy: !args.no_lazy,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        match args.ablation {
            true => forward::ablation(&params, progress),
            false => forward::run(&params, progress),
        }
    })
}
