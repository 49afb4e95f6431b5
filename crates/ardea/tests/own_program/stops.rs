//! Runs that are stopped by SIGTERM.

use std::fs;
use std::path::Path;

use crate::Test;
use crate::program::{finish, run, start, summary, terminate, text, until};

pub const ALL: &[Test] = &[
    (
        "a_job_whose_last_checkpoint_is_not_made_in_time_is_interrupted_and_says_what_it_goes_on_from",
        a_job_whose_last_checkpoint_is_not_made_in_time_is_interrupted_and_says_what_it_goes_on_from,
    ),
    (
        "a_job_whose_driver_hangs_in_a_call_is_interrupted_in_time_all_the_same",
        a_job_whose_driver_hangs_in_a_call_is_interrupted_in_time_all_the_same,
    ),
    (
        "a_job_with_a_guarantee_is_stopped_and_goes_on_with_its_counts",
        a_job_with_a_guarantee_is_stopped_and_goes_on_with_its_counts,
    ),
];

pub const FORM: [&str; 7] = [
    "run",
    "--json",
    "--set",
    "guarantee=exactly-once",
    "--set",
    "checkpoints.folder=state",
    "--set",
];

/// Returns the newest committed epoch in the job's folder.
pub fn committed(folder: &Path) -> Option<u64> {
    let looked = run(folder, "checkpoints --json state");
    let is_there = looked.status.success();
    is_there.then(|| summary(&looked)["committed"].as_u64())?
}

fn a_job_whose_last_checkpoint_is_not_made_in_time_is_interrupted_and_says_what_it_goes_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "recovery.stop_within=300ms",
        "--set",
        "metrics.sinks=json-lines:metrics.jsonl",
        "--set",
        "metrics.every=100ms",
        "stuck",
    ];
    let words = [&FORM[..], &settings].concat();
    let child = start(folder.path(), &words);
    until("an epoch ends", || {
        let told = fs::read_to_string(folder.path().join("metrics.jsonl"));
        told.is_ok_and(|told| told.contains("ardea_snapshots_total"))
    });
    terminate(&child);
    let output = finish(child);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert!(told.contains("could not be made within 300ms"), "{told}");
    assert!(told.contains("run again, it begins"), "{told}");
    assert_eq!(summary(&output)["status"], "interrupted");
}

fn a_job_whose_driver_hangs_in_a_call_is_interrupted_in_time_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ["recovery.stop_within=300ms", "hung", "mark"];
    let words = [&FORM[..], &settings].concat();
    let child = start(folder.path(), &words);
    until("the second attempt hangs", || {
        folder.path().join("mark.hung").exists()
    });
    terminate(&child);
    let output = finish(child);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert!(told.contains("could not be made within 300ms"), "{told}");
    assert_eq!(summary(&output)["status"], "interrupted");
}

fn a_job_with_a_guarantee_is_stopped_and_goes_on_with_its_counts() {
    let folder = tempfile::tempdir().unwrap();
    let words = [&FORM[..], &["checkpoints.every=50ms", "forever"]].concat();
    let mut before = 0;
    for _ in 0..2 {
        let earlier = committed(folder.path());
        let child = start(folder.path(), &words);
        until("a checkpoint is made", || {
            committed(folder.path()) > earlier
        });
        terminate(&child);
        let output = finish(child);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let told = summary(&output);
        assert_eq!(told["status"], "stopped");
        let read = told["records_in"].as_u64().unwrap();
        assert!(read > before, "{told}");
        before = read;
    }
}
