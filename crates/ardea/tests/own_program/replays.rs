//! Replays of recorded micro-batches.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::Test;
use crate::program::{finish, run, start, terminate, text, until};

pub const ALL: &[Test] = &[
    (
        "a_recorded_step_is_replayed_and_saved_as_a_fixture",
        a_recorded_step_is_replayed_and_saved_as_a_fixture,
    ),
    (
        "a_replay_of_what_is_not_recorded_is_refused_with_what_is",
        a_replay_of_what_is_not_recorded_is_refused_with_what_is,
    ),
    (
        "a_step_that_reads_the_clock_is_found_and_named",
        a_step_that_reads_the_clock_is_found_and_named,
    ),
    (
        "the_recording_of_a_killed_process_is_replayed",
        the_recording_of_a_killed_process_is_replayed,
    ),
    (
        "a_recording_with_checkpoints_is_replayed_from_their_states",
        a_recording_with_checkpoints_is_replayed_from_their_states,
    ),
];

const RECORD: &str = "--set mode=micro-batch --set micro_batch.record=recording";

/// Runs `replay --json` with these words, and returns the exit code and the report.
fn replay(folder: &Path, words: &str) -> (Option<i32>, Value) {
    let line = format!("replay --json --set micro_batch.record=recording {words}");
    let output = run(folder, &line);
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code(), report)
}

/// Returns the size of the recording of an instance in bytes; zero if there is none.
fn bytes_of(folder: &Path, place: &str) -> u64 {
    let files = fs::read_dir(folder.join("recording").join(place));
    let files = files.into_iter().flatten().flatten();
    files
        .map(|file| file.metadata().map_or(0, |data| data.len()))
        .sum()
}

fn a_recorded_step_is_replayed_and_saved_as_a_fixture() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let lines: Vec<String> = (0..5_000).map(|number| number.to_string()).collect();
    fs::write(at.join("in"), lines.join("\n")).unwrap();
    let batches = "--set micro_batch.records=500";
    let output = run(at, &format!("run {RECORD} {batches} parse in out"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (code, report) = replay(at, "--vertex numbers parse in out");
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["equal"], true, "{report}");
    assert!(report["micro_batches"].as_u64() >= Some(10), "{report}");
    assert_eq!(report["run"], 1);
    let line = "replay --set micro_batch.record=recording --vertex map --epoch 3 --save saved/map parse in out";
    let output = run(at, line);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = text(&output.stdout);
    assert!(
        told.contains("\"map\", instance 0: micro-batches 0 to"),
        "{told}"
    );
    assert!(
        told.contains("equal: the output is the same to the byte"),
        "{told}"
    );
    let words = ["parse", "in", "out"].map(String::from);
    let job = crate::job::describe(&words).unwrap();
    let report = ardea::testing::replay(&job, at.join("saved/map"));
    assert!(report.records_in > 0, "{report}");
    // The fixture is not overwritten.
    assert_eq!(run(at, line).status.code(), Some(3));
}

fn a_replay_of_what_is_not_recorded_is_refused_with_what_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("in"), "1\n2\n").unwrap();
    let output = run(at, &format!("run {RECORD} parse in out"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let set = "--set micro_batch.record=recording";
    for (words, code, told) in [
        ("--vertex numbers", 2, "micro_batch.record is not set"),
        (
            "--set micro_batch.record=other --vertex numbers",
            3,
            "other has no recording of the job \"parse\"",
        ),
        (
            &format!("{set} --vertex number"),
            2,
            "the job has no step \"number\"; recorded steps are numbers, map",
        ),
        (
            &format!("{set} --vertex numbers --instance 9"),
            2,
            "no recorded instance 9; its instances are 0 to",
        ),
        (
            &format!("{set} --vertex numbers --micro-batch 99999"),
            2,
            "recorded are micro-batches 0 to",
        ),
        (
            &format!("{set} --vertex numbers --run 5"),
            3,
            "no run 5 of the job \"parse\"; its runs are 1",
        ),
    ] {
        let output = run(at, &format!("replay {words} parse in out"));
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {error}");
        assert!(flat(&error).contains(told), "{words}: {error}");
    }
    let continuous = "--set micro_batch.record=recording";
    let output = run(at, &format!("run {continuous} parse in out"));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// Returns an error text in one line.
fn flat(error: &str) -> String {
    let words: Vec<&str> = error.split_whitespace().collect();
    words.join(" ").replace(" hint: ", "; ")
}

fn a_step_that_reads_the_clock_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let output = run(at, &format!("run {RECORD} clock"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (code, report) = replay(at, "--vertex honest clock");
    assert_eq!(
        (code, &report["equal"]),
        (Some(0), &true.into()),
        "{report}"
    );
    let output = run(
        at,
        "replay --set micro_batch.record=recording --vertex liar clock",
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stdout);
    assert!(told.contains("different: micro-batch"), "{told}");
    let error = text(&output.stderr);
    assert!(error.contains("\"liar\""), "{error}");
    assert!(error.contains("`nondeterministic`"), "{error}");
}

fn the_recording_of_a_killed_process_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let line = format!("run {RECORD} forever");
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut child = start(at, &words);
    until("micro-batches are recorded", || {
        bytes_of(at, "forever/run-1/counts/0") > 20_000
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let (code, report) = replay(at, "--vertex counts forever");
    assert_eq!(
        (code, &report["equal"]),
        (Some(0), &true.into()),
        "{report}"
    );
    assert!(report["micro_batches"].as_u64() > Some(10), "{report}");
}

fn a_recording_with_checkpoints_is_replayed_from_their_states() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let checkpoints = "--set guarantee=exactly-once --set checkpoints.folder=state --set checkpoints.every=20ms --set checkpoints.pause=0s";
    let bound = "--set micro_batch.record_bytes=64KiB";
    let line = format!("run {RECORD} {checkpoints} {bound} forever");
    let words: Vec<&str> = line.split_whitespace().collect();
    for attempt in 1..=2 {
        let child = start(at, &words);
        let place = format!("forever/run-{attempt}/counts/0");
        let first = format!("recording/{place}/segment-00000001");
        until("the first micro-batches are dropped", || {
            bytes_of(at, &place) > 10_000 && !at.join(&first).exists()
        });
        terminate(&child);
        let output = finish(child);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(bytes_of(at, &place) <= 64 << 10);
        let (code, report) = replay(at, &format!("--run {attempt} --vertex counts forever"));
        assert_eq!(
            (code, &report["equal"]),
            (Some(0), &true.into()),
            "{report}"
        );
        assert!(report["first"].as_u64() > Some(0), "{report}");
    }
}
