//! `ardea bench snapshot`: its options.

use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::snapshot::{self, SnapshotParams};
use ardea_core::Guarantee;

use super::promise::{both, guarantee};
use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct SnapshotBenchArgs {
    /// Keys of the state, of about a hundred bytes each
    #[arg(long, value_name = "N", value_parser = count, default_value = "10_000_000")]
    keys: u64,
    /// How many in a hundred keys change from one snapshot to the next; records come as fast as that takes
    #[arg(long, value_name = "PERCENT", default_value = "1")]
    changed: f64,
    /// How often an epoch ends, with a snapshot
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    snapshot_interval: Duration,
    /// The folder for snapshots, made anew; in memory without one
    #[arg(long, value_name = "DIR")]
    snapshot_folder: Option<PathBuf>,
    /// How long is measured
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20s")]
    duration: Duration,
    /// How long records flow before that, behind the first snapshot, which is of everything
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    warmup: Duration,
    /// Cooperative threads, and instances that keep state
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// How long an idle thread looks for work before it sleeps: more is steadier, and burns up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
    /// What the job promises of its records: none, at-least-once or exactly-once
    #[arg(long, value_name = "GUARANTEE", default_value = "exactly-once", value_parser = guarantee)]
    guarantee: Guarantee,
    /// Run each time without the guarantee first, and tell at the end what it costs, pair by pair
    #[arg(long)]
    both: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
pub fn run(args: &SnapshotBenchArgs, context: &Context) -> Result<(), Failure> {
    check_threads(args.threads)?;
    let params = SnapshotParams {
        keys: args.keys,
        changed: args.changed,
        snapshot_interval: args.snapshot_interval,
        snapshot_folder: args.snapshot_folder.clone(),
        duration: args.duration,
        warmup: args.warmup,
        threads: args.threads,
        spin: args.spin,
        guarantee: args.guarantee,
    };
    if args.both {
        let without = SnapshotParams {
            guarantee: Guarantee::None,
            ..params.clone()
        };
        return both(
            args.guarantee,
            &args.repeat,
            context,
            |is_second, progress| {
                snapshot::run(if is_second { &params } else { &without }, progress)
            },
        );
    }
    repeat::run(args.repeat.repeat, context, |progress| {
        snapshot::run(&params, progress)
    })
}
