//! The arguments of `ardea bench exchange`.

use std::time::Duration;

use ardea_bench::exchange::{self, ExchangeParams, RecordKind};
use clap::ValueEnum;

use super::{Repeat, repeat};
use crate::args::{count, duration};
use crate::context::Context;
use crate::failure::Failure;

/// The kind of records.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Records {
    /// Five numbers, 40 bytes
    Rows,
    /// Words of 3 to 16 letters
    Words,
}

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
pub struct ExchangeBenchArgs {
    /// Kind of records
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Records::Rows)]
    records: Records,
    /// Records per second: measures latency
    #[arg(long, value_name = "N", value_parser = count, default_value = "100000")]
    rate: u64,
    /// Run as fast as possible: measures throughput
    #[arg(long)]
    max: bool,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    warmup: Duration,
    #[command(flatten)]
    repeat: Repeat,
}

/// Runs the benchmark, `--repeat` times.
pub fn run(args: &ExchangeBenchArgs, context: &Context) -> Result<(), Failure> {
    let params = ExchangeParams {
        records: match args.records {
            Records::Rows => RecordKind::Rows,
            Records::Words => RecordKind::Words,
        },
        rate: args.rate,
        max: args.max,
        duration: args.duration,
        warmup: args.warmup,
    };
    repeat::run(args.repeat.repeat, context, |progress| {
        exchange::run(&params, progress)
    })
}
