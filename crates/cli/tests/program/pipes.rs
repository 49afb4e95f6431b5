//! Standard output as a pipe: a reader that closes it early is a normal end, and it contains only
//! results.

use std::fs;
use std::io::{BufRead, BufReader, Write};

use serde_json::Value;

use crate::ardea::{ardea, events, finish, head_1, run};

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
fn records_that_were_bad_are_told_also_when_the_reader_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text").display().to_string();
    let mut text = b"\xff\n".to_vec();
    text.extend((0..50_000).flat_map(|word| format!("word{word}\n").into_bytes()));
    fs::write(&path, text).unwrap();
    let wordcount = ["run", "wordcount", &path, "--top", "50_000"];
    for (option, expected) in [
        ("--verbose", "warning: 1 record could not be dealt with, "),
        ("--quiet", "warning: 1 record could not be dealt with, "),
        (
            "--json",
            "{\"warning\":\"1 record could not be dealt with, ",
        ),
    ] {
        let mut child = ardea(&[&[option], &wordcount[..]].concat())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut String::new()).unwrap();
        drop(out);
        let finished = finish(child);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert!(finished.err.starts_with(expected), "{finished:?}");
        assert_eq!(finished.err.lines().count(), 1, "{finished:?}");
    }
}

#[test]
fn events_may_come_from_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let input = events(folder.path(), 5_000);
    let query = ["-q", "nexmark", "run", "--query", "q1", "-o", "-", "-i"];
    let expected = run(&[&query[..], &[&input]].concat()).out;
    let child = ardea(&[&query[..], &["-"]].concat())
        .stdin(fs::File::open(&input).unwrap())
        .spawn();
    assert_eq!(finish(child.unwrap()).out, expected);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let child = ardea(&[&query[..], &["-"]].concat()).stdin(reader).spawn();
    writer.write_all(&fs::read(&input).unwrap()).unwrap();
    drop(writer);
    assert_eq!(finish(child.unwrap()).out, expected);
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
    // Nor is the address of the page printed.
    let quiet = run(&[&query[..], &["--quiet", "--set", "ui=127.0.0.1:0"]].concat());
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
        "--json", "nexmark", "run", "--query", "q0", "-i", &input, "-o", &output,
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
    let shown = run(&[
        "--json",
        "--progress",
        "nexmark",
        "run",
        "--query",
        "q0",
        "-i",
        &input,
        "-o",
        &output,
    ]);
    for line in shown.err.lines() {
        let notice: Value = serde_json::from_str(line).unwrap();
        assert!(notice["notice"].is_string(), "{line}");
    }
    assert!(!shown.err.is_empty());
}
