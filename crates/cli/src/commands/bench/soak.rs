//! The output of `ardea bench soak`, with a line for each sample.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;

use ardea::command_line::Context;
use ardea::console::{Failure, print_error};
use ardea_bench::Report;
use ardea_bench::wordcount::{SoakParams, soak};

use super::table;
use crate::stdout;

/// Runs the benchmark; prints a JSON object per sample and one at the end, or text on a terminal.
pub fn run(params: &SoakParams, context: &Context) -> Result<(), Failure> {
    let for_people = !context.json && io::stdout().is_terminal();
    let mut printed = Ok(());
    let mut progress = |text: &str| {
        if !context.quiet {
            print_error(&format!("{text}\n"));
        }
    };
    let report = soak(params, &mut progress, &mut |sample| {
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
