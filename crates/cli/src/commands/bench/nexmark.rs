//! `ardea bench nexmark`: its options, and what of them is there yet.

use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::nexmark::{self, NexmarkParams};
use ardea_core::Guarantee;

use super::{Repeat, pairs, repeat};
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
    /// Cooperative threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
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
    /// The folder for snapshots, made anew; in memory without one
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

/// A guarantee, by its name.
fn guarantee(name: &str) -> Result<Guarantee, String> {
    let all = [
        Guarantee::None,
        Guarantee::AtLeastOnce,
        Guarantee::ExactlyOnce,
    ];
    let found = all.into_iter().find(|one| one.as_str() == name);
    found.ok_or_else(|| "give none, at-least-once or exactly-once".to_string())
}

/// Names that the benchmark contract has and that can have one value in this version: accepted, so that a command made for the
/// contract runs, and hidden, because they change nothing.
#[derive(clap::Args, Debug)]
struct Fixed {
    #[arg(long, hide = true, value_name = "N", default_value = "1")]
    workers: String,
    #[arg(long, hide = true, value_name = "MODE", default_value = "continuous")]
    mode: String,
    #[arg(long, hide = true, value_name = "DURATION", default_value = "5ms")]
    epoch: String,
}

impl Fixed {
    fn check(&self) -> Result<(), Failure> {
        let all = [
            ("workers", &self.workers, "1", "all runs are in one process"),
            (
                "mode",
                &self.mode,
                "continuous",
                "there are no micro-batches yet",
            ),
            (
                "epoch",
                &self.epoch,
                "5ms",
                "there are no micro-batches yet",
            ),
        ];
        match all.into_iter().find(|(_, given, only, _)| given != only) {
            None => Ok(()),
            Some((option, given, only, why)) => Err(Failure::usage(
                format!("--{option} {given} is not supported by this version: {why}"),
                format!("leave --{option} out, or give {only}"),
            )),
        }
    }
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
        jobs: args.jobs,
        spin: args.spin,
        fuse: !args.no_fuse,
        baseline: !args.no_baseline,
        guarantee: args.guarantee,
        snapshot_interval: args.snapshot_interval,
        snapshot_folder: args.snapshot_folder.clone(),
    };
    if args.both {
        if !args.guarantee.keeps_state() {
            return Err(Failure::usage(
                "--both compares runs with a guarantee with runs without",
                "add --guarantee exactly-once, or leave --both out",
            ));
        }
        let without = NexmarkParams {
            guarantee: Guarantee::None,
            // It is the same for both.
            baseline: false,
            ..params.clone()
        };
        return pairs::run(args.repeat.repeat, context, |is_second, progress| {
            nexmark::run(if is_second { &params } else { &without }, progress)
        });
    }
    repeat::run(args.repeat.repeat, context, |progress| {
        nexmark::run(&params, progress)
    })
}
