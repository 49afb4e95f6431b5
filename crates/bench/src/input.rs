//! Queries over files, in rows or columns: what decoding costs, beside a plain loop and DuckDB over
//! the same file.
//!
//! The job is the one that a user writes: a file is read, a query computed, and its results are
//! written to a file. The file is in the page cache, so that the figures are those of the programs
//! and not of the disk.

mod duckdb;
mod generated;
mod params;
mod plain;
mod words;

pub use params::{InputFormat, InputParams, InputQuery};

use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_nexmark::queries::{self, Query, QueryRun};
use ardea_pipeline::Pipeline;
use serde_json::json;
use tempfile::TempDir;

use crate::noise;
use crate::report::{Report, machine, rounded, throughput};
use crate::usage::{Stopwatch, reset_peak, with_peak};

/// The disorder of the events that the query accepts: they are in order.
const OUT_OF_ORDER: std::time::Duration = std::time::Duration::ZERO;

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; failures of the job; errors of the
/// temporary directory.
pub fn run(params: &InputParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    let directory = TempDir::new().map_err(|error| failed("create a directory", error))?;
    let (input, output) = (
        directory.path().join(params.file_name()),
        directory.path().join("results.jsonl"),
    );
    progress("writing the input");
    let events =
        generated::write(params, &input).map_err(|error| failed("write the input", error))?;
    let bytes = std::fs::metadata(&input).map_or(0, |file| file.len());
    progress("running the plain loop");
    let before = Stopwatch::begin();
    let (expected, plain_peak_mb) = with_peak(|| plain::results(params, &input));
    let expected = expected.map_err(|error| failed("read the input", error))?;
    let plain = before.spent();
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.threads, std::time::Duration::from_secs(1))?;
    reset_peak();
    let node = Node::start(NodeConfig::with_threads(params.threads))?;
    progress("measuring");
    let meanwhile = Stopwatch::begin();
    let pipeline = pipeline(params, &input, &output)?;
    pipeline.submit(&node, JobConfig::default())?.join()?;
    let spent = meanwhile.spent();
    let results = plain::count_lines(&output).map_err(|error| failed("read the results", error))?;
    progress("running DuckDB, if it is installed");
    let duckdb = duckdb::run(params, &input, &directory.path().join("duckdb.out"));
    let peak = |mebibytes: Option<f64>| json!(mebibytes.map(|it| rounded(it, 10.0)));
    let per_cpu_second = |cpu: f64| rounded(events as f64 / cpu, 1.0);
    let mut figures = throughput(events, spent);
    figures.extend([
        ("wall_s", json!(rounded(spent.wall.as_secs_f64(), 1e3))),
        ("bytes", json!(bytes)),
        (
            "bytes_per_s",
            json!(rounded(bytes as f64 / spent.wall.as_secs_f64(), 1.0)),
        ),
        ("results", json!(results)),
        ("expected_results", json!(expected)),
        (
            "baseline_events_per_cpu_s",
            json!(plain.per_cpu_second(events).map(f64::round)),
        ),
        ("baseline_rss_mb", peak(plain_peak_mb)),
        (
            "duckdb_events_per_cpu_s",
            json!(duckdb.map(|duckdb| per_cpu_second(duckdb.cpu_s))),
        ),
        (
            "duckdb_wall_s",
            json!(duckdb.map(|duckdb| rounded(duckdb.wall_s, 1e3))),
        ),
        ("duckdb_rss_mb", peak(duckdb.map(|duckdb| duckdb.rss_mb))),
    ]);
    figures.extend(machine(spent, noise));
    Ok(Report {
        bench: "input",
        parameters: params.fields(),
        figures,
    })
}

fn pipeline(params: &InputParams, input: &Path, output: &Path) -> Result<Pipeline> {
    let query = match params.query {
        InputQuery::Q1 => Query::Q1,
        InputQuery::Q5 => Query::Q5,
        InputQuery::Words if params.columns => return Ok(words::column_pipeline(input, output)),
        InputQuery::Words => return Ok(words::pipeline(input, output)),
    };
    let run = QueryRun {
        query,
        input: input.to_path_buf(),
        output: output.to_path_buf(),
        window: None,
        slide: None,
        side: None,
        out_of_order: Some(OUT_OF_ORDER),
    };
    match params.columns {
        true => queries::columns::build(&run),
        false => queries::build(&run),
    }
}

fn failed(what: &str, error: impl Into<std::io::Error>) -> Error {
    Error::new(
        ErrorCode::ReadFailed,
        format!("the benchmark cannot {what}"),
    )
    .because(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_query_gives_as_many_results_as_the_plain_loop() {
        let csv = |query, columns| (query, InputFormat::Csv, columns);
        let json = |query, columns| (query, InputFormat::Json, columns);
        for (query, format, columns) in [
            json(InputQuery::Q1, false),
            json(InputQuery::Q1, true),
            json(InputQuery::Q5, false),
            json(InputQuery::Q5, true),
            json(InputQuery::Words, false),
            json(InputQuery::Words, true),
            csv(InputQuery::Q1, false),
            csv(InputQuery::Q1, true),
            csv(InputQuery::Q5, false),
            csv(InputQuery::Q5, true),
            (InputQuery::Q1, InputFormat::Parquet, true),
            (InputQuery::Q5, InputFormat::Parquet, true),
        ] {
            let params = InputParams {
                query,
                format,
                columns,
                events: 20_000,
                threads: 2,
            };
            let report = run(&params, &mut |_| {}).unwrap();
            assert_eq!(
                report.figure("results"),
                report.figure("expected_results"),
                "{report:?}"
            );
            assert!(report.figure("results").as_u64() > Some(0), "{report:?}");
            for peak in ["rss_mb", "baseline_rss_mb"] {
                assert!(report.figure(peak).as_f64() > Some(1.0), "{report:?}");
            }
        }
    }
}
