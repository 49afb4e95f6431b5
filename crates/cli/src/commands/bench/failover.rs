//! The arguments of `ardea bench failover`.

use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::failover::{self, FailoverParams};
use ardea_core::Guarantee;

use super::guarantee_arg::{both, guarantee};
use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct FailoverBenchArgs {
    /// Number of keys of the state, about 100 bytes each
    #[arg(long, value_name = "N", value_parser = count, default_value = "10_000_000")]
    keys: u64,
    /// Records per second, each for another key
    #[arg(long, value_name = "N", value_parser = count, default_value = "50000")]
    rate: u64,
    /// Number of processes: containers of a temporary cluster on this machine
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    workers: u32,
    /// Number of cooperative threads per process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Time of the kill, from the start of the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    at: Duration,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    duration: Duration,
    /// Duration of the warm-up before the measurement, after the first (full) checkpoint
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    warmup: Duration,
    /// Processing guarantee of the job: none, at-least-once or exactly-once
    #[arg(long, value_name = "GUARANTEE", default_value = "exactly-once", value_parser = guarantee)]
    guarantee: Guarantee,
    /// Checkpoint interval
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    checkpoint_interval: Duration,
    /// Folder for checkpoints (default: the memory of the cluster's hosts)
    #[arg(long, value_name = "DIR")]
    checkpoint_folder: Option<PathBuf>,
    /// Run in pairs, first without the guarantee, and report its cost at the end
    #[arg(long)]
    both: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
pub fn run(args: &FailoverBenchArgs, context: &Context) -> Result<(), Failure> {
    check_threads(args.threads)?;
    let params = FailoverParams {
        keys: args.keys,
        rate: args.rate,
        workers: args.workers,
        threads: args.threads,
        at: args.at,
        duration: args.duration,
        warmup: args.warmup,
        guarantee: args.guarantee,
        checkpoint_interval: args.checkpoint_interval,
        checkpoint_folder: args.checkpoint_folder.clone(),
    };
    if args.both {
        let without = FailoverParams {
            guarantee: Guarantee::None,
            ..params.clone()
        };
        return both(
            args.guarantee,
            &args.repeat,
            context,
            |is_second, progress| {
                failover::run(if is_second { &params } else { &without }, progress)
            },
        );
    }
    repeat::run(args.repeat.repeat, context, |progress| {
        failover::run(&params, progress)
    })
}
