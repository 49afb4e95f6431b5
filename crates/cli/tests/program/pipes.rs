//! Standard output as a pipe: a reader that has seen enough is a normal end, and nothing but results is in it.

use std::io::{BufRead, BufReader};

use serde_json::Value;

use crate::ardea::{ardea, events, finish, run};

/// Reads one line and goes, as `head -1` does.
fn head_1(args: &[&str]) {
    let mut child = ardea(args).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.ends_with('\n'));
    let finished = finish(child);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_eq!(finished.err, "", "nothing went wrong");
}

#[test]
fn a_reader_of_generated_events_may_go() {
    head_1(&["nexmark", "generate", "--events", "1_000_000", "-o", "-"]);
}

#[test]
fn a_reader_of_a_jobs_results_may_go() {
    let folder = tempfile::tempdir().unwrap();
    let input = events(folder.path(), 100_000);
    head_1(&["nexmark", "run", "--query", "q0", "-i", &input, "-o", "-"]);
}

#[test]
fn in_a_pipe_there_is_no_progress_unless_asked_for_and_a_summary_unless_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let input = events(folder.path(), 5_000);
    let query = ["nexmark", "run", "--query", "q1", "-i", &input, "-o", "-"];
    let plain = run(&query);
    assert!(
        plain.err.starts_with("q1 completed after ") && !plain.err.contains('\u{1b}'),
        "{}",
        plain.err
    );
    assert_eq!(plain.out.lines().count(), 4_600);
    let quiet = run(&[&query[..], &["--quiet"]].concat());
    assert_eq!((quiet.err.as_str(), quiet.out.lines().count()), ("", 4_600));
    let shown = run(&[&query[..], &["--progress"]].concat());
    assert!(
        shown.err.starts_with("q1 ") && shown.err.contains("/s ("),
        "{}",
        shown.err
    );
}

#[test]
fn with_json_the_summary_is_one_object_on_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let input = events(folder.path(), 5_000);
    let output = folder.path().join("out").display().to_string();
    let finished = run(&[
        "--json", "nexmark", "run", "--query", "q2", "-i", &input, "-o", &output,
    ]);
    let summary: Value = serde_json::from_str(&finished.out).unwrap();
    assert_eq!(summary["status"], "completed");
    assert_eq!(summary["records_in"], 5_000);
    assert!(
        summary["vertices"]
            .as_array()
            .is_some_and(|vertices| vertices.len() >= 2)
    );
    assert_eq!(finished.err, "");
}
