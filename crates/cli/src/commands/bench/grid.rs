//! `ardea bench grid`: its options.

use std::time::Duration;

use ardea_bench::grid::{self, GridParams};

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::Context;
use crate::failure::Failure;

/// The options; the results carry each under its own name.
#[derive(clap::Args, Debug)]
pub struct GridBenchArgs {
    /// How many members the grid has, all in this process
    #[arg(long, value_name = "N", value_parser = count, default_value = "2")]
    members: u64,
    /// How many synchronous backups each entry has
    #[arg(long, value_name = "N", value_parser = count, default_value = "1")]
    backups: u64,
    /// Bytes of each value
    #[arg(long, value_name = "N", value_parser = count, default_value = "1024")]
    bytes: u64,
    /// How many keys the map has
    #[arg(long, value_name = "N", value_parser = count, default_value = "100000")]
    keys: u64,
    /// How long each kind of reading and writing is measured
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    duration: Duration,
    /// How long each kind runs before that
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1s")]
    warmup: Duration,
    #[command(flatten)]
    repeat: Repeat,
}

/// Measures, as often as asked.
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
