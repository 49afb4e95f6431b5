//! The arguments of `ardea bench active-active`.

use std::time::Duration;

use ardea_bench::active_active::{self, ActiveActiveParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::Context;
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct ActiveActiveBenchArgs {
    /// Records per second
    #[arg(long, value_name = "N", value_parser = count, default_value = "100000")]
    rate: u64,
    /// Length of windows
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10ms")]
    window: Duration,
    /// Duration of the measurement; a replica is killed in the middle of it
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20s")]
    duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "3s")]
    warmup: Duration,
    /// Checkpoint interval of each replica
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    checkpoint_interval: Duration,
    /// Run as one of the replicas (internal)
    #[arg(long, value_name = "JSON", hide = true)]
    copy: Option<String>,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
pub fn run(args: &ActiveActiveBenchArgs, context: &Context) -> Result<(), Failure> {
    if let Some(told) = &args.copy {
        return Ok(active_active::run_replica(told)?);
    }
    let params = ActiveActiveParams {
        rate: args.rate,
        window: args.window,
        duration: args.duration,
        warmup: args.warmup,
        checkpoint_interval: args.checkpoint_interval,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        active_active::run(&params, progress)
    })
}
