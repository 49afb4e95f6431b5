//! A word count by another system, measured beside each run of a sweep, and the chart of both.

use std::path::Path;

use ardea_core::Result;
use serde_json::Value;

use super::params::WordcountParams;
use crate::chart::{Axis, Chart, Scale, Series};
use crate::peer;

/// The columns of the table of a sweep.
const COLUMNS: [&str; 8] = [
    "system",
    "parallelism",
    "acks",
    "tuples_per_s",
    "tuples_per_cpu_s",
    "p50_ms",
    "p99_ms",
    "rss_mb",
];

/// Runs the word count of another system as fast as possible, and returns its figures. `program`
/// has the options `--acks`, `--parallelism` and `--seconds`.
///
/// # Errors
/// [`ErrorCode::StartFailed`](ardea_core::ErrorCode::StartFailed) if the program cannot be run,
/// fails, or prints no figures.
pub fn run_peer(program: &Path, run: &WordcountParams) -> Result<Value> {
    let acks = match run.acks {
        true => "on",
        false => "off",
    };
    let (instances, seconds) = (run.instances().to_string(), run.duration.as_secs().max(1));
    let seconds = seconds.to_string();
    let options = [
        "--acks",
        acks,
        "--parallelism",
        &instances,
        "--seconds",
        &seconds,
    ];
    peer::figures(program, &options, "tuples_per_s")
}

/// Writes a table and a chart of a sweep into a folder. `rows` are the figures of all systems.
///
/// # Errors
/// [`ErrorCode::WriteFailed`](ardea_core::ErrorCode::WriteFailed) if a file cannot be written.
pub fn write_sweep(folder: &Path, rows: &[Value]) -> Result<()> {
    let table = folder.join("wordcount.md");
    crate::chart::write_table(&table, &COLUMNS, rows.iter())?;
    chart(rows).write(&folder.join("wordcount.svg"))
}

/// Returns the name of a run on the chart.
fn name_of(row: &Value) -> String {
    let acks = match row["acks"] == true {
        true => "acks",
        false => "no acks",
    };
    format!("{}, {acks}", row["parallelism"])
}

fn chart(rows: &[Value]) -> Chart {
    let mut names: Vec<String> = Vec::new();
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let name = name_of(row);
        if !names.contains(&name) {
            names.push(name.clone());
        }
        let at = names.iter().position(|known| *known == name).unwrap_or(0);
        let Some(value) = row["tuples_per_s"].as_f64() else {
            continue;
        };
        let system = row["system"].as_str().unwrap_or("peer");
        Series::add(&mut series, system, (at as f64, value));
    }
    Chart {
        title: "Throughput of word count".into(),
        x: Axis::new("spouts, and bolts", Scale::Linear),
        y: Axis::new("tuples a second", Scale::Log(10.0)),
        names,
        marks: Vec::new(),
        series,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn systems_are_bars_beside_each_other() {
        let row = |system: &str, parallelism: u32| json!({ "system": system, "parallelism": parallelism, "acks": false, "tuples_per_s": 9 });
        let rows = [row("ardea", 1), row("storm", 1), row("ardea", 2)];
        let chart = chart(&rows);
        assert_eq!(chart.names, ["1, no acks", "2, no acks"]);
        assert_eq!(chart.series.len(), 2);
        assert_eq!(chart.series[0].points, [(0.0, 9.0), (1.0, 9.0)]);
    }
}
