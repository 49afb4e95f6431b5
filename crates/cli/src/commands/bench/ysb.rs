//! The arguments of `ardea bench ysb`.

use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::ysb::{self, YsbParams, YsbVictim};
use ardea_core::Guarantee;

use super::fixed::Fixed;
use super::guarantee_arg::{both, guarantee};
use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct YsbBenchArgs {
    /// Events per second, a third of which are views
    #[arg(long, value_name = "N", value_parser = count, default_value = "200000")]
    rate: u64,
    /// Number of campaigns, with ten advertisements each
    #[arg(long, value_name = "N", value_parser = count, default_value = "100")]
    campaigns: u64,
    /// Length of windows
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    window: Duration,
    /// Number of processes: containers of a temporary cluster on this machine
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// Number of cooperative threads per process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Process to kill with SIGKILL: worker, job-master (the host that leads the job) or host (the
    /// leader with its workers)
    #[arg(long, value_name = "WHAT", value_parser = victim)]
    kill: Option<YsbVictim>,
    /// Time of the kill, from the start of the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    at: Duration,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s")]
    duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    warmup: Duration,
    /// Processing guarantee of the job: none, at-least-once or exactly-once
    #[arg(long, value_name = "GUARANTEE", default_value = "none", value_parser = guarantee)]
    guarantee: Guarantee,
    /// Checkpoint interval, with a guarantee
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
    #[command(flatten)]
    fixed: Fixed,
}

/// Parses the name of the process to kill.
fn victim(name: &str) -> Result<YsbVictim, String> {
    let found = YsbVictim::ALL.into_iter().find(|one| one.as_str() == name);
    found.ok_or_else(|| "give worker, job-master or host".to_string())
}

/// Runs the benchmark, `--repeat` times.
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
        checkpoint_interval: args.checkpoint_interval,
        checkpoint_folder: args.checkpoint_folder.clone(),
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
