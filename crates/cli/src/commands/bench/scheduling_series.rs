//! `ardea bench scheduling`: one measurement, or with `--tune` or `--groups` a series of them.

use ardea::command_line::Context;
use ardea::console::Failure;
use ardea_bench::scheduling::{SchedulingParams, run_series};

use super::{BenchArgs, series};

/// The columns of the traces of `--tune`; numbers are on the right.
const TRACE: [&str; 5] = [">micro_batch", ">group", ">size", ">share", ">next_size"];
/// The columns of the sizes of `--groups`.
const SIZES: [&str; 6] = [
    ">group",
    ">batch_ms_p50",
    ">batch_ms_p95",
    ">reaction_ms",
    ">recovery_ms",
    ">repeated_batches",
];

/// Runs the benchmark.
pub fn run(args: &BenchArgs<SchedulingParams>, context: &Context) -> Result<(), Failure> {
    let params = &args.params;
    if !params.is_series() {
        return args.run(context);
    }
    if args.repeat.repeat > 1 {
        return Err(Failure::usage(
            "--repeat does not repeat a series",
            "leave --repeat out",
        ));
    }
    let columns = match params.tune {
        true => &TRACE[..],
        false => &SIZES[..],
    };
    series::run(columns, context, |progress, report| {
        run_series(params, progress, report)
    })
}
