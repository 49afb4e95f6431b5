//! The example jobs through the program: listed, explained, planned.

use std::fs::{self, OpenOptions};
use std::io::{BufReader, Read, Write};
use std::sync::mpsc;
use std::thread;

use rustix::process::Signal;
use serde_json::Value;

use crate::ardea::{ardea, eventually, exit_code, run, signal, succeed};

fn names() -> Vec<String> {
    let list: Value = serde_json::from_str(&succeed(&["--json", "examples"])).unwrap();
    list.as_array()
        .unwrap()
        .iter()
        .map(|job| job["name"].as_str().unwrap().to_string())
        .collect()
}

#[test]
fn every_job_is_listed_and_explains_itself() {
    let names = names();
    assert!(
        names.iter().any(|name| name == "flights"),
        "the demo is one of {names:?}"
    );
    let list = succeed(&["examples"]);
    for name in names {
        assert!(
            list.lines().any(|line| line.starts_with(&name)),
            "{name} is not in {list}"
        );
        let help = succeed(&["run", &name, "--help"]);
        assert!(help.contains(&name), "{help}");
    }
}

#[test]
fn options_of_ardea_may_stand_behind_a_job() {
    let plan = succeed(&[
        "plan",
        "wordcount",
        "book.txt",
        "--threads",
        "2",
        "--top",
        "3",
    ]);
    assert!(plan.contains("on 2 cooperative threads\n"), "{plan}");
    let json = succeed(&["plan", "wordcount", "book.txt", "--json"]);
    assert!(serde_json::from_str::<Value>(&json).is_ok());
}

#[test]
fn a_plan_says_in_which_mode_the_job_would_run_and_why() {
    let plan = |mode: &str, latency: &str| {
        let (mode, latency) = (format!("mode={mode}"), format!("latency={latency}"));
        let sets = ["--set", &mode, "--set", &latency];
        succeed(&[&sets[..], &["plan", "wordcount", "book.txt"]].concat())
    };
    assert!(plan("continuous", "0").ends_with("mode\n  continuous\n"));
    assert!(plan("micro-batch", "0").ends_with("mode\n  micro-batch, 5ms\n"));
    assert!(plan("auto", "10ms").ends_with("mode\n  micro-batch, 5ms\n"));
    let short = plan("auto", "1ms");
    let reason = "a micro-batch takes 5ms, and the latency budget is 1ms\n";
    assert!(
        short.ends_with(&format!("mode\n  continuous\n    {reason}")),
        "{short}"
    );
}

#[test]
fn what_stands_behind_two_dashes_is_the_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text").display().to_string();
    fs::write(&path, "to be or not to be to\n").unwrap();
    for arguments in [
        &["--", "--top", "1", &path][..],
        &["--", &path, "--top=1"],
        &[&path, "--", "--top", "1"],
        &["--top", "1", "--", &path],
    ] {
        let out = succeed(&[&["-q", "run", "wordcount"], arguments].concat());
        assert_eq!(out, "        3  to\n", "{arguments:?}");
    }
}

#[test]
fn the_help_of_a_job_may_be_asked_for_before_its_name() {
    let help = succeed(&["run", "wordcount", "--help"]);
    assert_eq!(succeed(&["run", "--help", "wordcount"]), help);
    assert_ne!(succeed(&["run", "--help"]), help);
}

#[test]
fn a_job_with_a_length_ends_then_whether_or_not_it_keeps_up() {
    // More records than any machine can generate within the test's time limit.
    let rate = "1_000_000_000";
    let sensors = ["--json", "run", "sensors", "--seconds", "1", "--rate", rate];
    let summary = run(&sensors);
    assert_eq!(summary.code, Some(0), "{summary:?}");
    assert!(summary.out.contains("\"status\":\"completed\""));
}

#[test]
fn a_replay_ends_where_it_is_when_it_is_interrupted() {
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut child = ardea(&["run", "flights", "--speed", "3600", "--progress"])
        .stderr(said.reopen().unwrap())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(said.path()).unwrap();
    eventually("flights have begun to leave", || said().contains("  at 20"));
    signal(&child, Signal::INT);
    assert_eq!(exit_code(&mut child), Some(4), "{}", said());
    let said = said();
    let summary: Vec<&str> = said
        .lines()
        .skip_while(|line| !line.starts_with("flights drained after"))
        .collect();
    assert!(summary[0].ends_with("(-v shows the steps)"), "{said}");
    assert_eq!(summary.len(), 1, "{said}");
}

#[test]
fn a_summary_has_the_steps_that_people_know_from_source_to_sink() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text").display().to_string();
    fs::write(&path, "to be or not to be\n").unwrap();
    let steps = |options: &[&str]| -> Vec<String> {
        let finished = run(&[options, &["run", "wordcount", &path]].concat());
        // With -v a second table follows, with times.
        let rows = finished.err.lines().skip(2);
        let rows = rows.take_while(|row| !row.starts_with("  vertex"));
        let rows = rows.filter(|row| row.starts_with("  ") && !row.starts_with("  and "));
        rows.map(|row| row.trim().split("  ").next().unwrap().to_string())
            .collect()
    };
    let source = format!("read {path}");
    assert_eq!(steps(&[]), [source.as_str(), "words", "top", "stdout"]);
    let all = steps(&["-v"]);
    assert!(all.len() > 4, "{all:?}");
    assert_eq!((&all[0], all.last().unwrap().as_str()), (&source, "stdout"));
    assert_eq!(all[1], "flat-map");
}

#[test]
fn the_demos_plan_shows_graph_and_tasklets() {
    let plan = succeed(&["plan", "--threads", "2", "flights"]);
    assert!(
        plan.contains("graph\n") && plan.contains("on 2 cooperative threads\n"),
        "{plan}"
    );
    let json: Value =
        serde_json::from_str(&succeed(&["--json", "plan", "--threads", "2", "flights"])).unwrap();
    assert_eq!(json["threads"], 2);
    let count = |field: &str| json[field].as_array().unwrap().len();
    assert!(count("vertices") > 3 && count("edges") > 2 && count("tasklets") <= count("vertices"));
}

#[test]
fn a_tail_from_the_end_leaves_out_what_was_there_before() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, "ERROR old\n".repeat(1_000)).unwrap();
    let name = log.display().to_string();
    let tail = ["-q", "run", "tail", "--from", "end", "--every", "20ms"];
    let mut child = ardea(&[&tail[..], &[&name]].concat()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (results, said) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = out.read(&mut buffer) {
            results.send(buffer[..count].to_vec()).unwrap();
        }
    });
    let mut counted = Vec::new();
    // Lines written before the job has found the end of the file don't count, so lines are added
    // until one does.
    eventually("a new line is counted", || {
        let mut file = OpenOptions::new().append(true).open(&log).unwrap();
        file.write_all(b"INFO new\n").unwrap();
        counted.extend(said.try_iter().flatten());
        !counted.is_empty()
    });
    signal(&child, Signal::INT);
    assert_eq!(exit_code(&mut child), Some(4));
    reader.join().unwrap();
    counted.extend(said.try_iter().flatten());
    let counted = String::from_utf8(counted).unwrap();
    for window in counted.lines() {
        assert!(window.contains("  0 of "), "{counted}");
    }
}
