//! `ardea bench scheduling`: one measurement, or with `--tune` or `--groups` a series of them.

use std::io::{self, IsTerminal};

use ardea::command_line::Context;
use ardea::console::{Failure, print_error};
use ardea_bench::Report;
use ardea_bench::scheduling::{SchedulingParams, run_series};

use super::BenchArgs;
use super::table::shown;
use crate::columns::table;
use crate::stdout;

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

/// Runs the benchmark. A series is one JSON object a line, or a table on a terminal.
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
    let for_people = !context.json && io::stdout().is_terminal();
    let mut progress = |text: &str| {
        if !context.quiet {
            print_error(&format!("{text}\n"));
        }
    };
    let (mut reports, mut printed) = (Vec::new(), Ok(()));
    run_series(params, &mut progress, &mut |report| {
        if !for_people && printed.is_ok() {
            printed = stdout::print_json(&report.to_json());
        }
        reports.push(report);
        Ok(())
    })?;
    printed?;
    match for_people {
        true => stdout::print(&text(&reports, params.tune)),
        false => Ok(()),
    }
}

/// Formats the table of a series.
fn text(reports: &[Report], is_trace: bool) -> String {
    let names = match is_trace {
        true => &TRACE[..],
        false => &SIZES[..],
    };
    let cells = |report: &Report| -> Vec<String> {
        let fields = report.to_json();
        let cell = |name: &str| shown(&fields[name.trim_start_matches('>')]);
        names.iter().map(|name| cell(name)).collect()
    };
    let rows: Vec<Vec<String>> = reports.iter().map(cells).collect();
    let headings: Vec<String> = names.iter().map(|name| name.replace('_', " ")).collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    format!("\n{}", table(&headings, &rows))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_series_is_a_table() {
        let report = Report {
            bench: "scheduling",
            parameters: vec![("group", json!(10))],
            figures: vec![("recovery_ms", json!(1234.5))],
        };
        let text = text(&[report], false);
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert!(lines[0].contains("recovery ms"), "{text}");
        assert!(
            lines[1].contains("10") && lines[1].contains("234.5"),
            "{text}"
        );
    }
}
