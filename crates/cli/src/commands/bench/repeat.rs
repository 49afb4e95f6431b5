//! Running a bench several times: a line each, and a last line with the best and the median of every figure.

use ardea_core::Result;
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::stdout;

/// The fields of one run.
type Fields = Map<String, Value>;

/// Runs `bench` this many times. Progress goes to standard error; the results are one JSON object a line, and with several runs a
/// last one `{"bench":…,"repeat":…,"best":{…},"median":{…}}`.
pub fn run(
    times: u32,
    context: &Context,
    mut bench: impl FnMut(&mut dyn FnMut(&str)) -> Result<Fields>,
) -> std::result::Result<(), Failure> {
    let mut runs = Vec::new();
    for number in 1..=times {
        let fields = bench(&mut |text| {
            if context.quiet {
            } else if times > 1 {
                print_error(&format!("run {number} of {times}: {text}\n"));
            } else {
                print_error(&format!("{text}\n"));
            }
        })?;
        stdout::print_json(&Value::Object(fields.clone()))?;
        runs.push(fields);
    }
    if runs.len() > 1 {
        stdout::print_json(&json!({
            "bench": runs[0].get("bench"),
            "repeat": times,
            "best": over_all(&runs, best),
            "median": over_all(&runs, |_, values| median(values)),
        }))?;
    }
    Ok(())
}

/// Each field that is a number in some run, as `choose` makes one of its values; those that are numbers in no run are left out.
fn over_all(runs: &[Fields], choose: impl Fn(&str, &mut [f64]) -> f64) -> Value {
    let mut chosen = Map::new();
    for name in runs.iter().flat_map(Map::keys) {
        let mut values: Vec<f64> = runs
            .iter()
            .filter_map(|run| run.get(name).and_then(Value::as_f64))
            .collect();
        if !values.is_empty() && !chosen.contains_key(name) {
            chosen.insert(name.clone(), tidy(choose(name, &mut values)));
        }
    }
    Value::Object(chosen)
}

/// Whole numbers stay whole.
fn tidy(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        json!(value as i64)
    } else {
        json!(value)
    }
}

/// The least of what costs, the greatest of what is gained.
fn best(name: &str, values: &mut [f64]) -> f64 {
    let ordered = values.iter().copied();
    let found = if is_gain(name) {
        ordered.reduce(f64::max)
    } else {
        ordered.reduce(f64::min)
    };
    found.unwrap_or(f64::NAN)
}

/// Whether more of the figure of this name is better. Times, memory and cpu, which are most figures, are better low.
fn is_gain(name: &str) -> bool {
    const GAINS: [&str; 4] = ["events", "results", "achieved_rate", "accuracy"];
    GAINS.contains(&name)
        || name.ends_with("_ratio")
        || (name.contains("_per_") && !name.starts_with("ms_") && !name.starts_with("bytes_per_it"))
}

fn median(values: &mut [f64]) -> f64 {
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

    fn runs() -> Vec<Fields> {
        [(3.0, Some(9.5), 100), (1.0, None, 300), (2.0, Some(1.5), 200)]
            .into_iter()
            .map(|(latency, tail, rate)| {
                let value = json!({
                    "query": "q5", "p50_ms": latency, "max_ms": tail, "events_per_cpu_s": rate, "baseline_ratio": rate,
                    "max": true,
                });
                value.as_object().cloned().unwrap()
            })
            .collect()
    }

    #[test]
    fn the_best_is_the_least_delay_and_the_greatest_throughput() {
        let expected =
            json!({ "p50_ms": 1, "max_ms": 1.5, "events_per_cpu_s": 300, "baseline_ratio": 300 });
        assert_eq!(over_all(&runs(), best), expected);
    }

    #[test]
    fn the_median_is_over_the_runs_that_have_the_figure() {
        let expected =
            json!({ "p50_ms": 2, "max_ms": 5.5, "events_per_cpu_s": 200, "baseline_ratio": 200 });
        assert_eq!(over_all(&runs(), |_, values| median(values)), expected);
    }

    #[test]
    fn per_second_is_a_gain_and_per_iteration_a_cost() {
        for gain in [
            "messages_per_s",
            "baseline_events_per_cpu_s",
            "tuples_per_s",
            "bytes_per_s",
            "events",
        ] {
            assert!(is_gain(gain), "{gain}");
        }
        for cost in [
            "p9999_ms",
            "rss_mb",
            "cpu_seconds",
            "ms_per_iteration_p50",
            "lost",
            "bytes_per_iteration",
            "max_ms",
        ] {
            assert!(!is_gain(cost), "{cost}");
        }
    }
}
