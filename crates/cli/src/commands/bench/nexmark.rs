//! `ardea bench nexmark`: its options.

use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::nexmark::{self, NexmarkParams};
use ardea_core::Guarantee;

use super::fixed::Fixed;
use super::promise::{both, guarantee};
use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct NexmarkBenchArgs {
    /// The query: q0, q1, q2, q5, q7, q8 or q13
    #[arg(long, value_name = "QUERY", default_value = "q5")]
    query: String,
    /// Events a second, over all jobs: measures latency
    #[arg(long, value_name = "N", value_parser = count, default_value = "1000000")]
    rate: u64,
    /// As fast as possible: measures throughput. `--rate` is then the pace of event time only
    #[arg(long)]
    max: bool,
    /// How long is measured
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20s")]
    duration: Duration,
    /// How long runs before that
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    warmup: Duration,
    /// The length of windows
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    window: Duration,
    /// How far they slide
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10ms")]
    slide: Duration,
    /// How many auctions there are
    #[arg(long, value_name = "N", value_parser = count, default_value = "10000")]
    keys: u64,
    /// Cooperative threads, of each process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Processes; more than one are containers of a cluster on this machine, which is made for the bench
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// Jobs that run at once, each with its share of the rate
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// How long an idle thread looks for work before it sleeps: more is steadier, and burns up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
    /// Give every stage a tasklet of its own, to see what sharing gains
    #[arg(long)]
    no_fuse: bool,
    /// Don't run the plain loop to compare with
    #[arg(long)]
    no_baseline: bool,
    /// What the jobs promise of their records: none, at-least-once or exactly-once
    #[arg(long, value_name = "GUARANTEE", default_value = "none", value_parser = guarantee)]
    guarantee: Guarantee,
    /// How often an epoch ends then, with a snapshot
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    snapshot_interval: Duration,
    /// The folder for snapshots, made anew; in memory without one, with several processes in that of the cluster's hosts
    #[arg(long, value_name = "DIR")]
    snapshot_folder: Option<PathBuf>,
    /// Run each time without the guarantee first, and tell at the end what it costs, pair by pair
    #[arg(long)]
    both: bool,
    #[command(flatten)]
    repeat: Repeat,
    #[command(flatten)]
    fixed: Fixed,
}

/// Measures, as often as asked.
pub fn run(args: &NexmarkBenchArgs, context: &Context) -> Result<(), Failure> {
    args.fixed.check()?;
    check_threads(args.threads)?;
    let params = NexmarkParams {
        query: args.query.parse()?,
        rate: args.rate,
        max: args.max,
        duration: args.duration,
        warmup: args.warmup,
        window: args.window,
        slide: args.slide,
        keys: args.keys,
        threads: args.threads,
        workers: args.workers,
        jobs: args.jobs,
        spin: args.spin,
        fuse: !args.no_fuse,
        baseline: !args.no_baseline,
        guarantee: args.guarantee,
        snapshot_interval: args.snapshot_interval,
        snapshot_folder: args.snapshot_folder.clone(),
    };
    if args.both {
        let without = NexmarkParams {
            guarantee: Guarantee::None,
            // It is the same for both.
            baseline: false,
            ..params.clone()
        };
        return both(
            args.guarantee,
            &args.repeat,
            context,
            |is_second, progress| {
                nexmark::run(if is_second { &params } else { &without }, progress)
            },
        );
    }
    repeat::run(args.repeat.repeat, context, |progress| {
        nexmark::run(&params, progress)
    })
}
