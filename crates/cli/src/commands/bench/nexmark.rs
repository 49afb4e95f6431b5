//! The arguments of `ardea bench nexmark`.

use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::nexmark::{self, NexmarkParams};
use ardea_core::Guarantee;

use super::fixed::Fixed;
use super::guarantee_arg::{both, guarantee};
use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct NexmarkBenchArgs {
    /// The query: q0, q1, q2, q5, q7, q8 or q13
    #[arg(long, value_name = "QUERY", default_value = "q5")]
    query: String,
    /// Events per second, over all jobs: measures latency
    #[arg(long, value_name = "N", value_parser = count, default_value = "1000000")]
    rate: u64,
    /// Run as fast as possible: measures throughput; `--rate` then only sets the pace of event time
    #[arg(long)]
    max: bool,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "20s")]
    duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    warmup: Duration,
    /// Length of windows
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    window: Duration,
    /// Slide of windows
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10ms")]
    slide: Duration,
    /// Number of auctions
    #[arg(long, value_name = "N", value_parser = count, default_value = "10000")]
    keys: u64,
    /// Number of cooperative threads per process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Number of processes; more than one are containers of a temporary cluster on this machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// Number of concurrent jobs, each with its share of the rate
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Time for which an idle thread polls before it sleeps: more gives steadier latency, and uses
    /// up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
    /// Disable the fusion of stages into tasklets, to measure its gain
    #[arg(long)]
    no_fuse: bool,
    /// Skip the plain loop that is used for comparison
    #[arg(long)]
    no_baseline: bool,
    /// Processing guarantee of the jobs: none, at-least-once or exactly-once
    #[arg(long, value_name = "GUARANTEE", default_value = "none", value_parser = guarantee)]
    guarantee: Guarantee,
    /// Checkpoint interval, with a guarantee
    #[arg(long, alias = "snapshot-interval", value_name = "DURATION", value_parser = duration,
        default_value = "1s")]
    checkpoint_interval: Duration,
    /// Folder for checkpoints, which is recreated (default: in memory; with several processes, in
    /// the memory of the cluster's hosts)
    #[arg(long, value_name = "DIR")]
    checkpoint_folder: Option<PathBuf>,
    /// Run in pairs, first without the guarantee, and report its cost at the end
    #[arg(long)]
    both: bool,
    #[command(flatten)]
    repeat: Repeat,
    #[command(flatten)]
    fixed: Fixed,
}

/// Runs the benchmark, `--repeat` times.
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
        checkpoint_interval: args.checkpoint_interval,
        checkpoint_folder: args.checkpoint_folder.clone(),
    };
    if args.both {
        let without = NexmarkParams {
            guarantee: Guarantee::None,
            // The baseline is the same for both runs.
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
