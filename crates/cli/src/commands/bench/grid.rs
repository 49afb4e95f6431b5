//! The arguments of `ardea bench grid`.

use std::time::Duration;

use ardea_bench::grid::{self, GridParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::Context;
use crate::failure::Failure;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct GridBenchArgs {
    /// Number of grid members, all in this process
    #[arg(long, value_name = "N", value_parser = count, default_value = "2")]
    members: u64,
    /// Number of synchronous backups per entry
    #[arg(long, value_name = "N", value_parser = count, default_value = "1")]
    backups: u64,
    /// Size of a value in bytes
    #[arg(long, value_name = "N", value_parser = count, default_value = "1024")]
    bytes: u64,
    /// Number of keys in the map
    #[arg(long, value_name = "N", value_parser = count, default_value = "100000")]
    keys: u64,
    /// Duration of the measurement of each kind of read and write
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    duration: Duration,
    /// Duration of the warm-up before each measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    warmup: Duration,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
pub fn run(args: &GridBenchArgs, context: &Context) -> Result<(), Failure> {
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let params = GridParams {
        members: size(args.members),
        backups: size(args.backups),
        bytes: size(args.bytes),
        keys: args.keys,
        duration: args.duration,
        warmup: args.warmup,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        grid::run(&params, progress)
    })
}
