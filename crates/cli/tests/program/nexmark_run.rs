//! `ardea nexmark run`: the same results in columns, the default, and in rows.

use std::fs;

use crate::ardea::{run, succeed};

/// Returns the sorted results of a query, as JSON values.
fn results(query: &[&str], output: &str) -> Vec<String> {
    let command = ["nexmark", "run", "-o", output];
    succeed(&[&command, query].concat());
    let text = fs::read_to_string(output).unwrap();
    let values = text.lines().map(|line| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        value.to_string()
    });
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values
}

#[test]
fn a_query_has_the_same_results_in_columns_and_in_rows() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (events, side) = (at("events.jsonl"), at("side.csv"));
    let generate = ["nexmark", "generate", "--events", "20_000", "-o", &events];
    succeed(&generate);
    fs::write(&side, "key,value\n1500,first\n2000,second\n").unwrap();
    for query in ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q13"] {
        let of = ["--query", query, "-i", &events, "--side", &side];
        let rows = results(&[&of[..], &["--rows"]].concat(), &at("rows.jsonl"));
        let default = results(&of, &at("default.jsonl"));
        let columns = results(&[&of[..], &["--columns"]].concat(), &at("columns.jsonl"));
        assert!(!rows.is_empty(), "{query}");
        assert!(rows == default && rows == columns, "{query}");
    }
}

#[test]
fn columns_and_rows_exclude_each_other() {
    let query = ["--query", "q1", "-i", "a", "-o", "b", "--rows", "--columns"];
    let finished = run(&[&["nexmark", "run"], &query[..]].concat());
    assert_eq!(finished.code, Some(2), "{finished:?}");
}
