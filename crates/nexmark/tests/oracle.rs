//! Tests that every query agrees with SQL over the same file, in order and out of order, on one
//! thread and on several, continuously and in micro-batches, over rows and over columns (feature
//! `columns`).
//!
//! The oracle is DuckDB behind `oracle/oracle.py`; `oracle/setup.sh` installs it. Without Python
//! the tests report that they were skipped.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ardea_core::Result;
use ardea_engine::{ExecutionMode, MicroBatchConfig, NodeConfig};
use ardea_nexmark::queries::{self, Query, QueryRun};
use ardea_nexmark::{GeneratorConfig, write_jsonl};
use ardea_pipeline::Pipeline;
use tempfile::TempDir;

/// Returns the Python of the oracle's environment. Prints the reason and returns `None` if there is
/// no Python.
fn python() -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3 for the oracle");
        return None;
    }
    let setup = Command::new("bash")
        .arg(home.join("oracle/setup.sh"))
        .output()
        .expect("bash runs");
    assert!(
        setup.status.success(),
        "setup.sh: {}",
        String::from_utf8_lossy(&setup.stderr)
    );
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| home.join("../../target"), PathBuf::from);
    Some(target.join("oracle-venv/bin/python3"))
}

/// Writes a file of events, and a table for query 13.
fn events(
    directory: &Path,
    seed: u64,
    out_of_order: Duration,
    first_event_time_ms: i64,
) -> PathBuf {
    let path = directory.join(format!("events-{seed}.jsonl"));
    let config = GeneratorConfig {
        seed,
        events: 20_000,
        first_event_time_ms,
        events_per_second: 500,
        out_of_order,
        ..GeneratorConfig::default()
    };
    let written = write_jsonl(config, BufWriter::new(File::create(&path).unwrap())).unwrap();
    assert_eq!(written, 20_000);
    let side: String = (0..10_000)
        .step_by(3)
        .map(|key| format!("{key},item {key}\n"))
        .collect();
    fs::write(directory.join("side.csv"), side).unwrap();
    path
}

/// Computes the expected results of a query by SQL.
fn expect(python: &Path, directory: &Path, input: &Path, query: Query) -> PathBuf {
    let expected = directory.join("expected.jsonl");
    let mut run = Command::new(python);
    run.arg(oracle("oracle.py"))
        .args(["--query", query.name(), "-i"])
        .arg(input)
        .arg("-o")
        .arg(&expected);
    if query == Query::Q13 {
        run.arg("--side").arg(directory.join("side.csv"));
    }
    let outcome = run.output().unwrap();
    assert!(
        outcome.status.success(),
        "{}: {}",
        query.name(),
        String::from_utf8_lossy(&outcome.stderr)
    );
    expected
}

/// Returns the path of a script of the oracle.
fn oracle(script: &str) -> PathBuf {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    home.join("oracle").join(script)
}

/// The builder of a query.
type Build = fn(&QueryRun) -> Result<Pipeline>;

/// The layouts of records, and the builders of queries over them.
const LAYOUTS: &[(&str, Build)] = &[
    ("rows", queries::build),
    #[cfg(feature = "columns")]
    ("columns", queries::columns::build),
];

/// Runs a query and compares its results with the expected ones.
fn agrees(
    python: &Path,
    expected: &Path,
    (layout, build): (&str, Build),
    run: &QueryRun,
    threads: u32,
    mode: ExecutionMode,
) {
    build(run)
        .unwrap()
        .run_with(NodeConfig {
            mode,
            micro_batch: MicroBatchConfig {
                epoch: Duration::from_millis(1),
                records: 700.try_into().ok(),
                ..MicroBatchConfig::default()
            },
            ..NodeConfig::with_threads(threads)
        })
        .unwrap();

    let compare = Command::new(python)
        .arg(oracle("compare.py"))
        .args([expected, &run.output])
        .output()
        .unwrap();
    assert!(
        compare.status.success(),
        "{} over {layout} on {threads} threads, {}: {}{}",
        run.query.name(),
        mode.name(),
        String::from_utf8_lossy(&compare.stdout),
        String::from_utf8_lossy(&compare.stderr)
    );
}

fn all_queries_agree(seed: u64, out_of_order: Duration, first_event_time_ms: i64) {
    let Some(python) = python() else { return };
    let directory = TempDir::new().unwrap();
    let input = events(directory.path(), seed, out_of_order, first_event_time_ms);
    for query in Query::ALL {
        let expected = expect(&python, directory.path(), &input, query);
        for layout in LAYOUTS {
            for (threads, mode) in [
                (1, ExecutionMode::Continuous),
                (3, ExecutionMode::Continuous),
                (3, ExecutionMode::MicroBatch),
            ] {
                // With a bound on the disorder, windows close before the end of the file, and the
                // result is the same.
                for out_of_order in [None, Some(out_of_order)] {
                    let run = QueryRun {
                        query,
                        input: input.clone(),
                        output: directory.path().join("actual.jsonl"),
                        window: None,
                        slide: None,
                        side: Some(directory.path().join("side.csv")),
                        out_of_order,
                    };
                    agrees(&python, &expected, *layout, &run, threads, mode);
                }
            }
        }
    }
}

#[test]
fn every_query_agrees_with_sql_over_events_in_order() {
    all_queries_agree(1, Duration::ZERO, 1_700_000_000_000);
}

#[test]
fn every_query_agrees_with_sql_over_events_out_of_order() {
    all_queries_agree(2, Duration::from_millis(1_500), 1_700_000_000_123);
}

#[test]
fn every_query_agrees_with_sql_over_events_before_1970() {
    all_queries_agree(3, Duration::from_millis(700), -20_000);
}
