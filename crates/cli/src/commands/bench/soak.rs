//! The arguments of `ardea bench soak`, and the line of each sample.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::Duration;

use ardea_bench::Report;
use ardea_bench::wordcount::{SoakParams, WordcountParams, soak};

use super::table;
use super::word_job::WordJobArgs;
use crate::args::{count, duration};
use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::stdout;

/// The options of this benchmark; the last object of its output contains their values.
#[derive(clap::Args, Debug)]
pub struct SoakBenchArgs {
    #[command(flatten)]
    job: WordJobArgs,
    /// Tuples per second, over all spouts (default: as fast as possible)
    #[arg(long, value_name = "N", value_parser = count)]
    rate: Option<u64>,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2h")]
    duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m")]
    warmup: Duration,
    /// Sampling interval of memory, files, threads and throughput
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m")]
    every: Duration,
}

/// Runs the benchmark; prints a JSON object per sample and one at the end, or text on a terminal.
pub fn run(args: &SoakBenchArgs, context: &Context) -> Result<(), Failure> {
    let params = SoakParams {
        wordcount: WordcountParams {
            rate: args.rate,
            duration: args.duration,
            warmup: args.warmup,
            baseline: false,
            ..args.job.params()?
        },
        every: args.every,
    };
    let for_people = !context.json && io::stdout().is_terminal();
    let mut printed = Ok(());
    let mut progress = |text: &str| {
        if !context.quiet {
            print_error(&format!("{text}\n"));
        }
    };
    let report = soak(&params, &mut progress, &mut |sample| {
        printed = match for_people {
            true => stdout::print(&line(sample)),
            false => stdout::print_json(&sample.to_json()),
        };
        match printed {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    printed?;
    match for_people {
        true => {
            let figures = vec![(String::new(), report.figures.clone())];
            stdout::print(&table::of(&report, &figures))
        }
        false => stdout::print_json(&report.to_json()),
    }
}

/// Formats a sample as a line of text.
fn line(sample: &Report) -> String {
    let of = |name: &str| table::shown(sample.figure(name));
    format!(
        "{:>6} s  {:>13} tuples/s  {:>13} per cpu second  {:>8} MiB  {:>4} files  {:>3} threads  {} failed\n",
        sample
            .figure("elapsed_s")
            .as_f64()
            .map_or(String::new(), |seconds| format!("{seconds:.0}")),
        of("tuples_per_s"),
        of("tuples_per_cpu_s"),
        of("rss_mb"),
        of("open_files"),
        of("os_threads"),
        of("failed"),
    )
}
