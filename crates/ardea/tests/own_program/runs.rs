//! Runs that reach their own end: output, metrics, dead letters and savepoints.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::Test;
use crate::job::{LATE, RECORDS};
use crate::program::{finish, run, start, summary, terminate, text, until};

pub const ALL: &[Test] = &[
    (
        "the_summary_is_an_object_with_json_and_a_text_without",
        the_summary_is_an_object_with_json_and_a_text_without,
    ),
    (
        "dead_letters_go_to_the_file_that_a_setting_names",
        dead_letters_go_to_the_file_that_a_setting_names,
    ),
    (
        "late_records_are_counted_over_all_attempts",
        late_records_are_counted_over_all_attempts,
    ),
    ("metrics_of_a_run_are_served", metrics_of_a_run_are_served),
    (
        "a_savepoint_is_written_and_shown",
        a_savepoint_is_written_and_shown,
    ),
];

fn the_summary_is_an_object_with_json_and_a_text_without() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("in"), "1\n2\nthree\n").unwrap();
    let output = run(at, "run --json -- parse in out");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = summary(&output);
    assert_eq!(told["job"], "parse");
    assert_eq!(told["status"], "completed");
    assert_eq!(
        (&told["records_in"], &told["records_out"]),
        (&3.into(), &2.into())
    );
    assert_eq!(told["dead_letters"]["count"], 1);
    assert_eq!(text(&output.stderr), "");
    for (line, is_told, shows_steps) in [
        ("parse in out", true, false),
        ("run -v parse in out", true, true),
        ("run -q parse in out", false, false),
    ] {
        let output = run(at, line);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(told.contains("parse completed after"), is_told, "{told}");
        assert_eq!(told.contains("\n  map"), shows_steps, "{told}");
        // No record disappears silently.
        assert!(
            told.contains("three") || told.contains("invalid digit"),
            "{told}"
        );
        assert!(output.stdout.is_empty());
    }
    // All records of a step were bad.
    fs::write(at.join("in"), "one\n").unwrap();
    assert_eq!(run(at, "parse in out").status.code(), Some(5));
}

fn dead_letters_go_to_the_file_that_a_setting_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("in"), "1\nthree\n").unwrap();
    let output = run(at, "run --set dead_letters=bad.jsonl parse in out");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let letters = fs::read_to_string(at.join("bad.jsonl")).unwrap();
    assert!(letters.contains("\"raw\":\"three\""), "{letters}");
    // With a guarantee, beyond the limit.
    let many = "three and more of this kind\n".repeat(1_000);
    fs::write(at.join("in"), format!("1\n{many}")).unwrap();
    let guarantee = "--set guarantee=exactly-once --set checkpoints.folder=state";
    let limit = "--set dead_letters=few.jsonl --set dead_letters_limit=4KiB";
    let output = run(at, &format!("run --json {guarantee} {limit} parse in out2"));
    let told = summary(&output);
    let written = fs::read_to_string(at.join("few.jsonl")).unwrap();
    let lines = written.lines().count() as u64;
    assert!(lines > 10 && written.len() <= 4 << 10);
    assert_eq!(told["dead_letters"]["count"], 1_000);
    assert_eq!(told["dead_letters"]["unwritten"], 1_000 - lines);
    for (wrong, code) in [
        ("kafka:x", 2),
        ("nats:a/b", 2),
        ("no/such/folder/bad", 3),
        ("/", 3),
    ] {
        let output = run(at, &format!("run --set dead_letters={wrong} parse in out3"));
        assert_eq!(output.status.code(), Some(code), "{wrong}: {output:?}");
        assert!(!at.join("out3").exists(), "{wrong}");
    }
}

fn late_records_are_counted_over_all_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let setting = "--set guarantee=exactly-once --set checkpoints.folder=state --set checkpoints.every=20ms --set checkpoints.pause=0s";
    let output = run(at, &format!("run --json {setting} windows out mark"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = summary(&output);
    assert_eq!(told["fault_tolerance"]["recoveries"], 1, "{told}");
    assert!(
        told["fault_tolerance"]["checkpoints"].as_u64() > Some(2),
        "{told}"
    );
    assert_eq!(
        told["fault_tolerance"]["counts_since_epoch"],
        serde_json::Value::Null
    );
    assert_eq!(told["records_in"], RECORDS, "{told}");
    assert_eq!(told["late"], LATE, "{told}");
}

fn metrics_of_a_run_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for guarantee in ["none", "exactly-once"] {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let sinks = format!("metrics.sinks=prometheus:{address},json-lines:{guarantee}.jsonl");
        let guarantee = format!("guarantee={guarantee}");
        let words = [
            "run",
            "--set",
            &sinks,
            "--set",
            &guarantee,
            "--set",
            "metrics.every=100ms",
            "forever",
        ];
        // A sink that can't be created is an error of the run.
        let refused = finish(start(at, &words));
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        drop(taken);
        let child = start(at, &words);
        until("records are counted", || {
            let Ok(mut stream) = TcpStream::connect(address) else {
                return false;
            };
            let mut answer = String::new();
            let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            let asked = stream.write_all(request.as_bytes());
            asked.is_ok()
                && stream.read_to_string(&mut answer).is_ok()
                && answer.contains("ardea_records_in_total{")
                && answer.contains("job=\"forever\"")
        });
        terminate(&child);
        let output = finish(child);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
    }
    let lines = fs::read_to_string(at.join("none.jsonl")).unwrap();
    assert!(lines.contains("ardea_records_out_total"), "{lines}");
    let wrong = run(at, "run --set metrics.sinks=prom forever");
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}

fn a_savepoint_is_written_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let setting = "--set guarantee=exactly-once --set checkpoints.folder=state";
    fs::write(at.join("mark"), "").unwrap();
    let output = run(at, &format!("run {setting} windows out mark"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(run(at, "savepoint state --to saved").status.code(), Some(0));
    let shown = run(at, "savepoint inspect saved --check");
    let told = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    assert!(
        told.contains("windows in saved") && told.contains("whole: "),
        "{told}"
    );
    let shown = summary(&run(at, "savepoint inspect --json saved"));
    assert_eq!(shown["savepoint"]["job"], "windows");
    let wrong = run(at, "savepoint inspect");
    assert_eq!(wrong.status.code(), Some(2));
    let why = text(&wrong.stderr);
    assert!(why.contains("savepoint inspect <PLACE>"), "{why}");
}
