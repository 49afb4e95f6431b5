//! `ardea bench wakeup`: its options.

use std::time::Duration;

use ardea_bench::wakeup::{self, WakeupParams};

use super::{Repeat, repeat};
use crate::args::duration;
use crate::context::Context;
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct WakeupBenchArgs {
    /// The mean time between two records; each gap is between half and one and a half times as long
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20ms")]
    gap: Duration,
    /// How long idleness is measured, and then, as long again, waking
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20s")]
    duration: Duration,
    /// How long runs before that
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    warmup: Duration,
    /// How long an idle thread looks for work before it sleeps: more is steadier, and burns up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
pub fn run(args: &WakeupBenchArgs, context: &Context) -> Result<(), Failure> {
    let params = WakeupParams {
        gap: args.gap,
        duration: args.duration,
        warmup: args.warmup,
        spin: args.spin,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        wakeup::run(&params, progress)
    })
}
