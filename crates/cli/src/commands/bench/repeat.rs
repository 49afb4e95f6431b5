//! Runs a benchmark several times, and reports the best and the median of every figure.

use std::io::{self, IsTerminal};

use ardea::command_line::Context;
use ardea::console::{Failure, print_error};
use ardea_bench::Report;
use ardea_bench::report::Field;
use ardea_core::Result;
use serde_json::{Map, Value, json};

use super::table;
use crate::stdout;

/// The maximum number of runs that have columns of their own in the table.
const MOST_COLUMNS: usize = 5;

/// Runs `bench` `times` times. Progress goes to standard error.
///
/// On a terminal the results are a table. Elsewhere, and with `--json`, each result is one JSON
/// object on a line. Several results are followed by an object with the parameters, `repeat`,
/// `best` and `median`.
pub fn run(
    times: u32,
    context: &Context,
    mut bench: impl FnMut(&mut dyn FnMut(&str)) -> Result<Report>,
) -> std::result::Result<(), Failure> {
    let for_people = !context.json && io::stdout().is_terminal();
    let mut runs = Vec::new();
    for number in 1..=times {
        let report = bench(&mut |text| {
            if context.quiet {
            } else if times > 1 {
                print_error(&format!("run {number} of {times}: {text}\n"));
            } else {
                print_error(&format!("{text}\n"));
            }
        })?;
        if !for_people {
            stdout::print_json(&report.to_json())?;
        }
        runs.push(report);
    }
    let [first, ..] = &runs[..] else {
        return Ok(());
    };
    if for_people {
        stdout::print(&table::of(first, &columns(&runs)))
    } else if runs.len() > 1 {
        stdout::print_json(&summary(first, &runs))
    } else {
        Ok(())
    }
}

/// Returns the columns of the table with their headings.
fn columns(runs: &[Report]) -> Vec<(String, Vec<Field>)> {
    if let [only] = runs {
        return vec![(String::new(), only.figures.clone())];
    }
    let shown = if runs.len() > MOST_COLUMNS { &[] } else { runs };
    let mut columns: Vec<_> = (1..)
        .zip(shown)
        .map(|(number, run)| (format!("run {number}"), run.figures.clone()))
        .collect();
    columns.push(("best".into(), over_all(runs, best)));
    columns.push(("median".into(), over_all(runs, median)));
    columns
}

/// Returns the last object of the output after several runs, which summarizes them.
fn summary(first: &Report, runs: &[Report]) -> Value {
    let object = |fields: Vec<Field>| -> Map<String, Value> {
        let named = fields.into_iter();
        named
            .map(|(name, value)| (name.to_string(), value))
            .collect()
    };
    let mut line = first.head();
    line.insert("repeat".into(), json!(runs.len()));
    line.insert("best".into(), json!(object(over_all(runs, best))));
    line.insert("median".into(), json!(object(over_all(runs, median))));
    Value::Object(line)
}

/// Returns each figure, reduced over all runs by `choose`; `null` if no run could measure it.
/// Figures that are no numbers are left out.
pub(super) fn over_all(runs: &[Report], choose: impl Fn(&str, &mut [f64]) -> f64) -> Vec<Field> {
    let names = runs
        .iter()
        .flat_map(|run| &run.figures)
        .map(|(name, _)| *name);
    let mut chosen: Vec<Field> = Vec::new();
    for name in names {
        let values: Vec<&Value> = runs.iter().map(|run| run.figure(name)).collect();
        let is_number = values
            .iter()
            .all(|value| value.is_number() || value.is_null());
        if !is_number || chosen.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let mut numbers: Vec<f64> = values.into_iter().filter_map(Value::as_f64).collect();
        let value = if numbers.is_empty() {
            Value::Null
        } else {
            tidy(choose(name, &mut numbers))
        };
        chosen.push((name, value));
    }
    chosen
}

/// Turns whole numbers into integers, and rounds others to six decimals.
fn tidy(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    const STEPS: f64 = 1e6;
    if value.fract() == 0.0 && value.abs() < EXACT {
        json!(value as i64)
    } else {
        json!((value * STEPS).round() / STEPS)
    }
}

/// Returns the minimum of a cost, or the maximum of a gain.
fn best(name: &str, values: &mut [f64]) -> f64 {
    let ordered = values.iter().copied();
    let found = if is_gain(name) {
        ordered.reduce(f64::max)
    } else {
        ordered.reduce(f64::min)
    };
    found.unwrap_or(f64::NAN)
}

/// Returns true if more of this figure is better. Less is better for most figures, such as times,
/// memory and CPU.
fn is_gain(name: &str) -> bool {
    const GAINS: [&str; 12] = [
        "events",
        "tuples",
        "frames",
        "gets",
        "far_gets",
        "near_gets",
        "puts",
        "single_puts",
        "results",
        "latencies",
        "achieved_rate",
        "accuracy",
    ];
    const ENDINGS: [&str; 4] = ["_ratio", "_share", "_per_s", "_per_cpu_s"];
    GAINS.contains(&name) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Returns the median.
pub(super) fn median(_: &str, values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs() -> Vec<Report> {
        [
            (3.0, Some(9.5), 100, true),
            (1.0, None, 300, false),
            (2.0, Some(1.5), 200, true),
        ]
        .into_iter()
        .map(|(latency, tail, rate, agrees)| Report {
            bench: "nexmark",
            parameters: vec![("query", json!("q5")), ("keys", json!(10))],
            figures: vec![
                ("p50_ms", json!(latency)),
                ("max_ms", json!(tail)),
                ("events_per_cpu_s", json!(rate)),
                ("rss_mb", Value::Null),
                ("agrees_with_baseline", json!(agrees)),
            ],
        })
        .collect()
    }

    #[test]
    fn the_last_line_has_what_was_asked_for_and_the_best_and_median_of_every_figure() {
        let runs = runs();
        let expected = json!({
            "system": "ardea", "version": env!("CARGO_PKG_VERSION"), "bench": "nexmark",
            "query": "q5", "keys": 10, "repeat": 3,
            "best": { "p50_ms": 1, "max_ms": 1.5, "events_per_cpu_s": 300, "rss_mb": null },
            "median": { "p50_ms": 2, "max_ms": 5.5, "events_per_cpu_s": 200, "rss_mb": null },
        });
        assert_eq!(summary(&runs[0], &runs), expected);
    }

    #[test]
    fn a_table_of_many_runs_has_only_what_they_come_to() {
        let headings = |runs: &[Report]| -> Vec<String> {
            columns(runs)
                .into_iter()
                .map(|(heading, _)| heading)
                .collect()
        };
        assert_eq!(headings(&runs()[..1]), [""]);
        assert_eq!(
            headings(&runs()),
            ["run 1", "run 2", "run 3", "best", "median"]
        );
        assert_eq!(headings(&[runs(), runs()].concat()), ["best", "median"]);
    }

    #[test]
    fn per_second_is_a_gain_and_per_iteration_a_cost() {
        for gain in [
            "messages_per_s",
            "baseline_events_per_cpu_s",
            "tuples_per_s",
            "bytes_per_s",
            "events",
            "tuples",
            "frames",
        ] {
            assert!(is_gain(gain), "{gain}");
        }
        for cost in [
            "p9999_ms",
            "rss_mb",
            "cpu_seconds",
            "generator_cpu_seconds",
            "cpu_us_per_event",
            "idle_cpu_percent",
            "ms_per_iteration_p50",
            "messages_per_batch",
            "lost",
            "bytes_per_iteration",
            "max_ms",
        ] {
            assert!(!is_gain(cost), "{cost}");
        }
    }
}
