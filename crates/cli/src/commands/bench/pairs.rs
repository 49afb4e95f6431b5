//! Runs a benchmark in pairs, without and with an option, and reports the cost of the option pair
//! by pair.

use std::io::{self, IsTerminal};

use ardea::command_line::Context;
use ardea::console::{Failure, print_error};
use ardea_bench::Report;
use ardea_bench::report::Field;
use ardea_core::Result;
use serde_json::{Map, Value, json};

use super::repeat::{median, over_all};
use super::table;
use crate::stdout;

/// A run without the option, and a run with it.
type Pair = [Report; 2];

/// Runs `bench` in `times` pairs; its first argument is false for the first run of a pair and true
/// for the second. Progress goes to standard error.
///
/// On a terminal the results are a table: the medians of both kinds of runs, and the median ratio
/// of each figure, pair by pair. Elsewhere, and with `--json`, each result is one JSON object on a
/// line, followed by an object with `pairs` and `with_by_without`.
pub fn run(
    times: u32,
    context: &Context,
    mut bench: impl FnMut(bool, &mut dyn FnMut(&str)) -> Result<Report>,
) -> std::result::Result<(), Failure> {
    let for_people = !context.json && io::stdout().is_terminal();
    let mut pairs: Vec<Pair> = Vec::new();
    for number in 1..=times {
        let mut half = |is_second: bool| -> std::result::Result<Report, Failure> {
            let which = if is_second { "with" } else { "without" };
            let report = bench(is_second, &mut |text| {
                if !context.quiet {
                    print_error(&format!("pair {number} of {times}, {which}: {text}\n"));
                }
            })?;
            if !for_people {
                stdout::print_json(&report.to_json())?;
            }
            Ok(report)
        };
        pairs.push([half(false)?, half(true)?]);
    }
    let Some([_, first]) = pairs.first() else {
        return Ok(());
    };
    match for_people {
        true => stdout::print(&table::of(first, &columns(&pairs))),
        false => stdout::print_json(&summary(first, &pairs)),
    }
}

/// Returns the columns of the table with their headings.
fn columns(pairs: &[Pair]) -> Vec<(String, Vec<Field>)> {
    let runs = |at: usize| -> Vec<Report> { pairs.iter().map(|pair| pair[at].clone()).collect() };
    vec![
        ("without".into(), over_all(&runs(0), median)),
        ("with".into(), over_all(&runs(1), median)),
        ("with / without".into(), ratios(pairs)),
    ]
}

/// Returns the last object of the output, which summarizes the pairs.
fn summary(first: &Report, pairs: &[Pair]) -> Value {
    let mut line = first.head();
    line.insert("pairs".into(), json!(pairs.len()));
    let ratios = ratios(pairs).into_iter();
    let ratios: Map<String, Value> = ratios.map(|(name, it)| (name.to_string(), it)).collect();
    line.insert("with_by_without".into(), Value::Object(ratios));
    Value::Object(line)
}

/// Returns the median ratio (with / without) of each figure, over the pairs in which both runs have
/// a number.
fn ratios(pairs: &[Pair]) -> Vec<Field> {
    let names = pairs.first().into_iter().flat_map(|[_, with]| {
        let figures = with.figures.iter();
        figures.map(|(name, _)| *name)
    });
    let ratio = |name: &'static str| -> Option<Field> {
        let of = |report: &Report| report.figure(name).as_f64().filter(|value| *value != 0.0);
        let pairs = pairs.iter();
        let mut ratios: Vec<f64> = pairs
            .filter_map(|[without, with]| Some(of(with)? / of(without)?))
            .collect();
        let told = |ratio: f64| json!((ratio * 1e4).round() / 1e4);
        (!ratios.is_empty()).then(|| (name, told(median(name, &mut ratios))))
    };
    names.filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(latency: f64, rate: u64, checkpoints: Value) -> Report {
        Report {
            bench: "nexmark",
            parameters: vec![("query", json!("q5"))],
            figures: vec![
                ("p50_ms", json!(latency)),
                ("events_per_cpu_s", json!(rate)),
                ("checkpoints", checkpoints),
                ("agrees_with_baseline", json!(true)),
            ],
        }
    }

    #[test]
    fn the_last_line_has_what_each_figure_becomes_pair_by_pair() {
        let pair = |before: f64, after: f64| {
            let without = run(before, 1_000, Value::Null);
            [without, run(after, 950, json!(4))]
        };
        // The machine was slower in the second pair, which is no cost of the option.
        let pairs = [pair(1.0, 1.1), pair(5.0, 6.0), pair(2.0, 2.6)];
        let last = summary(&pairs[0][1], &pairs);
        assert_eq!((&last["pairs"], &last["query"]), (&json!(3), &json!("q5")));
        let expected = json!({ "p50_ms": 1.2, "events_per_cpu_s": 0.95 });
        assert_eq!(last["with_by_without"], expected);
        let headings: Vec<String> = columns(&pairs).into_iter().map(|(name, _)| name).collect();
        assert_eq!(headings, ["without", "with", "with / without"]);
    }
}
