//! `ardea bench forward`: its options.

use std::time::Duration;

use ardea_bench::forward::{self, ForwardParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::Context;
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct ForwardBenchArgs {
    /// Bytes of each frame's payload at most: as many words as fit
    #[arg(long, value_name = "N", value_parser = count, default_value = "16384")]
    bytes: u64,
    /// How long is measured
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    duration: Duration,
    /// How long runs before that
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    warmup: Duration,
    /// Copy each payload, to see what leaving it in place gains
    #[arg(long)]
    no_in_place: bool,
    /// Allocate memory for every read, to see what using it again gains
    #[arg(long)]
    no_pools: bool,
    /// Decode each tuple of each payload, and encode it again, to see what leaving it alone gains
    #[arg(long)]
    no_lazy: bool,
    /// Measure with all savings, without each alone, and without any: what each of them gains
    #[arg(long, conflicts_with_all = ["no_in_place", "no_pools", "no_lazy"])]
    ablation: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
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
