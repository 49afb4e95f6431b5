//! `ardea bench submit`: its options.

use ardea_bench::submit::{self, SubmitParams};

use super::{Repeat, repeat};
use crate::args::count;
use crate::context::Context;
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct SubmitBenchArgs {
    /// Containers of the job
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    containers: u32,
    /// Hosts of the cluster, all of them on this machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    hosts: u32,
    /// Records a second
    #[arg(long, value_name = "N", value_parser = count, default_value = "10000")]
    rate: u64,
    /// Submit a program that the cluster has already
    #[arg(long)]
    stored: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
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
