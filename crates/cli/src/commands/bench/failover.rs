//! `ardea bench failover`: its options.

use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::failover::{self, FailoverParams};
use ardea_core::Guarantee;

use super::promise::{both, guarantee};
use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct FailoverBenchArgs {
    /// Keys of the state, of about a hundred bytes each
    #[arg(long, value_name = "N", value_parser = count, default_value = "10_000_000")]
    keys: u64,
    /// Records a second, each for another key
    #[arg(long, value_name = "N", value_parser = count, default_value = "50000")]
    rate: u64,
    /// Processes: containers of a cluster on this machine, which is made for the bench
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    workers: u32,
    /// Cooperative threads of each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// When the worker is killed, within the measured time
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    at: Duration,
    /// How long is measured
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    duration: Duration,
    /// How long records flow before that, behind the first snapshot, which is of everything
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    warmup: Duration,
    /// What the job promises of its records: none, at-least-once or exactly-once
    #[arg(long, value_name = "GUARANTEE", default_value = "exactly-once", value_parser = guarantee)]
    guarantee: Guarantee,
    /// How often an epoch ends, with a snapshot
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    snapshot_interval: Duration,
    /// The folder for snapshots; in the memory of the cluster's hosts without one
    #[arg(long, value_name = "DIR")]
    snapshot_folder: Option<PathBuf>,
    /// Run each time without the guarantee first, and tell at the end what it costs, pair by pair
    #[arg(long)]
    both: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
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
        snapshot_interval: args.snapshot_interval,
        snapshot_folder: args.snapshot_folder.clone(),
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
