//! `ardea bench twins`: its options.

use std::time::Duration;

use ardea_bench::twins::{self, TwinsParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::Context;
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct TwinsBenchArgs {
    /// Records a second
    #[arg(long, value_name = "N", value_parser = count, default_value = "100000")]
    rate: u64,
    /// How wide windows are
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10ms")]
    window: Duration,
    /// How long is measured; in the middle of it a copy is killed
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20s")]
    duration: Duration,
    /// How long runs before that
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "3s")]
    warmup: Duration,
    /// How often each copy makes a snapshot
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    snapshot_interval: Duration,
    /// Be one of the copies; how the bench starts them
    #[arg(long, value_name = "JSON", hide = true)]
    copy: Option<String>,
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
pub fn run(args: &TwinsBenchArgs, context: &Context) -> Result<(), Failure> {
    if let Some(told) = &args.copy {
        return Ok(twins::copy(told)?);
    }
    let params = TwinsParams {
        rate: args.rate,
        window: args.window,
        duration: args.duration,
        warmup: args.warmup,
        snapshot_interval: args.snapshot_interval,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        twins::run(&params, progress)
    })
}
