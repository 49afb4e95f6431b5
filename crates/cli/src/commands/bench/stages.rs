//! `ardea bench stages`: its options.

use std::time::Duration;

use ardea_bench::stages::{self, StagesParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct StagesBenchArgs {
    /// How many stages a payment passes; every thirtieth is keyed by the account
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..))]
    stages: u32,
    /// Payments a second
    #[arg(long, value_name = "N", value_parser = count, default_value = "1000")]
    rate: u64,
    /// How long is measured
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20s")]
    duration: Duration,
    /// How long runs before that
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    warmup: Duration,
    /// Cooperative threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// How long an idle thread looks for work before it sleeps: more is steadier, and burns up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
    /// Give every stage a tasklet of its own, to see what sharing gains
    #[arg(long)]
    no_fuse: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
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
