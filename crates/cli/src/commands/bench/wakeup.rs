//! The arguments of `ardea bench wakeup`.

use std::time::Duration;

use ardea_bench::wakeup::{self, WakeupParams};

use super::{Repeat, repeat};
use crate::args::duration;
use crate::context::Context;
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct WakeupBenchArgs {
    /// Mean time between two records; each gap is 0.5 to 1.5 times as long
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20ms")]
    gap: Duration,
    /// Duration of each of the two measurements: of idleness, and of wakeups
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20s")]
    duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    warmup: Duration,
    /// Time for which an idle thread polls before it sleeps: more gives steadier latency, and uses
    /// up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
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
