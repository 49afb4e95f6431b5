//! Jobs with a guarantee, and `ardea checkpoints`.

use std::fs;

use serde_json::Value;

use crate::ardea::{events, run, succeed};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_job_with_a_guarantee_completes_says_what_that_took_and_is_not_run_twice() {
    let folder = tempfile::tempdir().unwrap();
    let events = events(folder.path(), 20_000);
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (output, plain, state) = (at("out.jsonl"), at("plain.jsonl"), at("state"));
    let setting = format!("checkpoints.folder={state}");
    let query = |output: &str, more: &[&str]| {
        // With one thread the results have the order of the events.
        let mut args = vec![
            "nexmark",
            "run",
            "--threads",
            "1",
            "--query",
            "q2",
            "-i",
            &events,
            "-o",
            output,
        ];
        args.extend(more);
        run(&args)
    };
    let guarantee = ["--set", "guarantee=exactly-once", "--set", &setting];
    let finished = query(&output, &[&guarantee[..], &["--json"]].concat());
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let summary = json(&finished.out);
    assert_eq!(summary["status"], "completed");
    assert!(
        summary["fault_tolerance"]["checkpoints"].as_u64() >= Some(1),
        "{summary}"
    );
    query(&plain, &[]);
    assert_eq!(fs::read(&output).unwrap(), fs::read(&plain).unwrap());
    let looked = json(&succeed(&["checkpoints", &state, "--check", "--json"]));
    assert_eq!(
        (&looked["job"], &looked["state"]),
        (&Value::from("q2"), &Value::from("completed"))
    );
    let checkpoints = looked["checkpoints"].as_array().unwrap();
    assert!(!checkpoints.is_empty());
    assert!(
        checkpoints
            .iter()
            .all(|checkpoint| checkpoint["damage"].is_null())
    );
    let text = succeed(&["checkpoints", &state]);
    assert!(text.starts_with("q2 in "), "{text}");
    assert!(text.contains("by vertex"), "{text}");
    let again = query(&output, &guarantee);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.err.contains("has completed already"), "{again:?}");
    let elsewhere = at("elsewhere.jsonl");
    let other = query(&elsewhere, &guarantee);
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(
        other.err.contains("elsewhere.jsonl") && other.err.contains("has completed in"),
        "{other:?}"
    );
    // Damage is detected, and reported by the exit code.
    for file in fs::read_dir(&state).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "manifest") {
            fs::write(path, "ardea checkpoint 1 xxh3 0\n{}").unwrap();
        }
    }
    let damaged = run(&["checkpoints", &state]);
    assert_eq!(damaged.code, Some(1), "{damaged:?}");
    assert!(damaged.out.contains("damaged"), "{damaged:?}");
    assert!(damaged.err.contains("ARD-645"), "{damaged:?}");
}

#[test]
fn a_folder_that_is_no_jobs_is_told_with_what_to_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let finished = run(&["checkpoints", &path]);
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert!(finished.err.contains("checkpoints.folder"), "{finished:?}");
    let finished = run(&["checkpoints", &format!("{path}/none")]);
    assert_eq!(finished.code, Some(3), "{finished:?}");
}

#[test]
fn a_savepoint_is_written_shown_checked_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let events = events(folder.path(), 20_000);
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (output, state, saved) = (at("out.jsonl"), at("state"), at("saved"));
    let setting = format!("checkpoints.folder={state}");
    succeed(&[
        "nexmark",
        "run",
        "--query",
        "q5",
        "-i",
        &events,
        "-o",
        &output,
        "--set",
        "guarantee=exactly-once",
        "--set",
        &setting,
    ]);
    let written = json(&succeed(&["savepoint", &state, "--to", &saved, "--json"]));
    assert_eq!(written["savepoint"]["job"], "q5");
    let text = succeed(&["savepoint", "inspect", &saved, "--check"]);
    assert!(text.starts_with("q5 in "), "{text}");
    assert!(text.contains("whole: "), "{text}");
    let again = run(&["savepoint", &state, "--to", &saved]);
    assert_eq!(again.code, Some(2), "{again:?}");
    // Compared with itself nothing changes; another job lacks its states.
    let same = json(&succeed(&["diff", &state, &saved, "--json"]));
    assert_eq!(same["possible"], true, "{same}");
    let other = run(&["diff", &saved, "wordcount", "book.txt"]);
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(other.out.contains("impossible"), "{other:?}");
    // Damage is detected.
    for file in fs::read_dir(&saved).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "block") {
            let mut bytes = fs::read(&path).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(path, bytes).unwrap();
        }
    }
    let damaged = run(&["savepoint", "inspect", &saved, "--check"]);
    assert_eq!(damaged.code, Some(1), "{damaged:?}");
    let none = run(&["savepoint", "inspect", &state]);
    assert!(none.err.contains("no savepoint"), "{none:?}");
}
