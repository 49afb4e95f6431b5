//! `ardea nexmark generate`: the same seed gives the same bytes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::ardea::{ardea, exit_code, run, signal, succeed};

fn generate(path: &Path, more: &[&str]) -> Vec<u8> {
    let path = path.display().to_string();
    succeed(
        &[
            &["nexmark", "generate", "--events", "5_000", "-o", &path],
            more,
        ]
        .concat(),
    );
    fs::read(&path).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let first = generate(&path("a"), &["--seed", "7"]);
    assert!(first == generate(&path("b"), &["--seed", "7"]));
    assert!(first != generate(&path("c"), &["--seed", "8"]));
    let late = ["--seed", "7", "--out-of-order", "2s"];
    let disordered = generate(&path("d"), &late);
    assert!(first != disordered);
    assert!(disordered == generate(&path("e"), &late));
}

#[test]
fn standard_output_gets_the_same_bytes_as_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = generate(&folder.path().join("a"), &[]);
    let out = succeed(&["nexmark", "generate", "--events", "5000", "-o", "-"]);
    assert!(file == out.as_bytes());
    assert_eq!(out.lines().count(), 5_000);
}

#[test]
fn progress_is_shown_where_it_is_asked_for() {
    let events = [
        "nexmark",
        "generate",
        "--events",
        "1_000_000_000",
        "-o",
        "/dev/null",
    ];
    let mut child = ardea(&[&["--progress"], &events[..]].concat())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert!(
        line.contains(" of 1.00 G events  ") && line.ends_with(" %\n"),
        "{line}"
    );
    signal(&child, Signal::INT);
    assert_eq!(exit_code(&mut child), Some(130));
}

#[test]
fn the_result_is_told_as_text_or_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a").display().to_string();
    let args = ["nexmark", "generate", "--events", "1234", "-o", &path];
    let finished = run(&args);
    assert_eq!(finished.err, format!("1,234 events written to {path}\n"));
    assert_eq!(run(&[&args[..], &["--quiet"]].concat()).err, "");
    let json: Value = serde_json::from_str(&succeed(&[&args[..], &["--json"]].concat())).unwrap();
    assert_eq!(json["events"], 1_234);
}

#[test]
fn a_file_that_is_named_so_is_compressed_and_a_query_reads_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let plain = generate(&path("events.jsonl"), &[]);
    let results = |input: &str| {
        let input = path(input).display().to_string();
        succeed(&[
            "-q",
            "nexmark",
            "run",
            "--query",
            "q1",
            "-i",
            &input,
            "-o",
            "-",
            "--threads",
            "1",
        ])
    };
    let expected = results("events.jsonl");
    assert!(expected.lines().count() > 4_000);
    for (name, magic) in [
        ("events.jsonl.gz", &[0x1f, 0x8b][..]),
        ("events.jsonl.zst", &[0x28, 0xb5, 0x2f, 0xfd]),
    ] {
        let packed = generate(&path(name), &[]);
        assert!(packed.starts_with(magic), "{name}");
        assert!(packed.len() < plain.len() / 2, "{name}");
        assert!(results(name) == expected, "{name}");
    }
}
