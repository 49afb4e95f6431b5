//! The arguments of `ardea bench checkpoint`.

use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::checkpoint::{self, CheckpointParams};
use ardea_core::Guarantee;

use super::guarantee_arg::{both, guarantee};
use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct CheckpointBenchArgs {
    /// Number of keys of the state, about 100 bytes each
    #[arg(long, value_name = "N", value_parser = count, default_value = "10_000_000")]
    keys: u64,
    /// Percentage of keys that change between two checkpoints; determines the rate of records
    #[arg(long, value_name = "PERCENT", default_value = "1")]
    changed: f64,
    /// Checkpoint interval
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    checkpoint_interval: Duration,
    /// Folder for checkpoints, which is recreated (default: in memory)
    #[arg(long, value_name = "DIR")]
    checkpoint_folder: Option<PathBuf>,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20s")]
    duration: Duration,
    /// Duration of the warm-up before the measurement, after the first (full) checkpoint
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    warmup: Duration,
    /// Number of cooperative threads, and of instances with state
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Time for which an idle thread polls before it sleeps: more gives steadier latency, and uses
    /// up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
    /// Processing guarantee of the job: none, at-least-once or exactly-once
    #[arg(long, value_name = "GUARANTEE", default_value = "exactly-once", value_parser = guarantee)]
    guarantee: Guarantee,
    /// Run in pairs, first without the guarantee, and report its cost at the end
    #[arg(long)]
    both: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
pub fn run(args: &CheckpointBenchArgs, context: &Context) -> Result<(), Failure> {
    check_threads(args.threads)?;
    let params = CheckpointParams {
        keys: args.keys,
        changed: args.changed,
        checkpoint_interval: args.checkpoint_interval,
        checkpoint_folder: args.checkpoint_folder.clone(),
        duration: args.duration,
        warmup: args.warmup,
        threads: args.threads,
        spin: args.spin,
        guarantee: args.guarantee,
    };
    if args.both {
        let without = CheckpointParams {
            guarantee: Guarantee::None,
            ..params.clone()
        };
        return both(
            args.guarantee,
            &args.repeat,
            context,
            |is_second, progress| {
                checkpoint::run(if is_second { &params } else { &without }, progress)
            },
        );
    }
    repeat::run(args.repeat.repeat, context, |progress| {
        checkpoint::run(&params, progress)
    })
}
