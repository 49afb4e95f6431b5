//! The arguments of `ardea bench submit`.

use ardea_bench::submit::{self, SubmitParams};

use super::{Repeat, repeat};
use crate::args::count;
use crate::context::Context;
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct SubmitBenchArgs {
    /// Number of containers of the job
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    containers: u32,
    /// Number of hosts of the cluster, all on this machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    hosts: u32,
    /// Records per second
    #[arg(long, value_name = "N", value_parser = count, default_value = "10000")]
    rate: u64,
    /// Submit a program that is already in the cluster's package store
    #[arg(long)]
    stored: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
pub fn run(args: &SubmitBenchArgs, context: &Context) -> Result<(), Failure> {
    let params = SubmitParams {
        containers: args.containers,
        hosts: args.hosts,
        rate: args.rate,
        stored: args.stored,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        submit::run(&params, progress)
    })
}
