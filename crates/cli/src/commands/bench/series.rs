//! Benchmarks with a series of results: one JSON object a line, or a table on a terminal.

use std::io::{self, IsTerminal};

use ardea::command_line::Context;
use ardea::console::{Failure, print_error};
use ardea_bench::Report;
use ardea_core::Result;

use super::table::shown;
use crate::columns::table;
use crate::stdout;

/// Receives status texts.
pub type Progress<'a> = dyn FnMut(&str) + 'a;

/// Receives the results of a series.
pub type Receiver<'a> = dyn FnMut(Report) -> Result<()> + 'a;

/// Runs `series`, and prints its results: those on a terminal at the end, with these columns.
/// Numbers have `>` before the names of their columns, and are on the right.
pub fn run(
    columns: &[&str],
    context: &Context,
    series: impl FnOnce(&mut Progress<'_>, &mut Receiver<'_>) -> Result<()>,
) -> std::result::Result<(), Failure> {
    let for_people = !context.json && io::stdout().is_terminal();
    let mut progress = |text: &str| {
        if !context.quiet {
            print_error(&format!("{text}\n"));
        }
    };
    let (mut reports, mut printed) = (Vec::new(), Ok(()));
    series(&mut progress, &mut |report| {
        if !for_people && printed.is_ok() {
            printed = stdout::print_json(&report.to_json());
        }
        reports.push(report);
        Ok(())
    })?;
    printed?;
    match for_people {
        true => stdout::print(&text(&reports, columns)),
        false => Ok(()),
    }
}

/// Formats the table of a series.
fn text(reports: &[Report], columns: &[&str]) -> String {
    let cells = |report: &Report| -> Vec<String> {
        let fields = report.to_json();
        let names = columns.iter().map(|name| name.trim_start_matches('>'));
        names.map(|name| shown(&fields[name])).collect()
    };
    let rows: Vec<Vec<String>> = reports.iter().map(cells).collect();
    let headings: Vec<String> = columns.iter().map(|name| name.replace('_', " ")).collect();
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
        let text = text(&[report], &[">group", ">recovery_ms"]);
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert!(lines[0].contains("recovery ms"), "{text}");
        assert!(
            lines[1].contains("10") && lines[1].contains("234.5"),
            "{text}"
        );
    }
}
