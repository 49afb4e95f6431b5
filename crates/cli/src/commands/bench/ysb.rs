//! `ardea bench ysb`: its options.

use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::ysb::{self, YsbParams, YsbVictim};
use ardea_core::Guarantee;

use super::fixed::Fixed;
use super::promise::{both, guarantee};
use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct YsbBenchArgs {
    /// Events a second, one in three of which is a view
    #[arg(long, value_name = "N", value_parser = count, default_value = "200000")]
    rate: u64,
    /// Campaigns, of ten advertisements each
    #[arg(long, value_name = "N", value_parser = count, default_value = "100")]
    campaigns: u64,
    /// The length of windows
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    window: Duration,
    /// Processes: containers of a cluster on this machine, which is made for the bench
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// Cooperative threads of each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// What is killed with SIGKILL: worker, job-master (the host that leads the job) or host (that with its workers)
    #[arg(long, value_name = "WHAT", value_parser = victim)]
    kill: Option<YsbVictim>,
    /// When, within the measured time
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    at: Duration,
    /// How long is measured
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s")]
    duration: Duration,
    /// How long runs before that
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    warmup: Duration,
    /// What the job promises of its records: none, at-least-once or exactly-once
    #[arg(long, value_name = "GUARANTEE", default_value = "none", value_parser = guarantee)]
    guarantee: Guarantee,
    /// How often an epoch ends then, with a snapshot
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
    #[command(flatten)]
    fixed: Fixed,
}

/// Who is to be killed, by name.
fn victim(name: &str) -> Result<YsbVictim, String> {
    let found = YsbVictim::ALL.into_iter().find(|one| one.as_str() == name);
    found.ok_or_else(|| "give worker, job-master or host".to_string())
}

/// Measures, as often as asked.
pub fn run(args: &YsbBenchArgs, context: &Context) -> Result<(), Failure> {
    args.fixed.check()?;
    check_threads(args.threads)?;
    let params = YsbParams {
        rate: args.rate,
        campaigns: args.campaigns,
        window: args.window,
        workers: args.workers,
        threads: args.threads,
        kill: args.kill,
        at: args.at,
        duration: args.duration,
        warmup: args.warmup,
        guarantee: args.guarantee,
        snapshot_interval: args.snapshot_interval,
        snapshot_folder: args.snapshot_folder.clone(),
    };
    if args.both {
        let without = YsbParams {
            guarantee: Guarantee::None,
            ..params.clone()
        };
        return both(
            args.guarantee,
            &args.repeat,
            context,
            |is_second, progress| ysb::run(if is_second { &params } else { &without }, progress),
        );
    }
    repeat::run(args.repeat.repeat, context, |progress| {
        ysb::run(&params, progress)
    })
}
