//! Ctrl-C: the first drains, the second stops at once; nothing is left half done.
//!
//! The job writes to a pipe that nobody reads, so it can't end by itself, drained or not, until the test reads.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout};

use rustix::process::Signal;
use serde_json::Value;

use crate::ardea::{ardea, events, eventually, exit_code, finish, signal};

const EVENTS: u64 = 200_000;

struct Stuck {
    child: Child,
    out: BufReader<ChildStdout>,
    first_line: String,
    folder: tempfile::TempDir,
}

/// A job that has begun to write and is held up by its reader. What it says goes to a file.
fn stuck_job() -> Stuck {
    let folder = tempfile::tempdir().unwrap();
    let input = events(folder.path(), EVENTS);
    let said = fs::File::create(folder.path().join("said")).unwrap();
    let mut child = ardea(&["nexmark", "run", "--query", "q0", "-i", &input, "-o", "-"])
        .stderr(said)
        .spawn()
        .unwrap();
    let mut out = BufReader::with_capacity(256, child.stdout.take().unwrap());
    let mut first_line = String::new();
    out.read_line(&mut first_line).unwrap();
    Stuck {
        child,
        out,
        first_line,
        folder,
    }
}

impl Stuck {
    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).unwrap()
    }

    fn drains_after(mut self, first: Signal) {
        signal(&self.child, first);
        eventually("it says that it drains", || {
            self.said().contains("draining: ")
        });
        assert!(
            self.said().contains("stdout"),
            "it says what it waits for: {}",
            self.said()
        );
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert_eq!(exit_code(&mut self.child), Some(0), "{}", self.said());
        let results = self.first_line.clone() + &rest;
        let count = results.lines().count() as u64;
        assert!(
            count < EVENTS * 46 / 50,
            "the source stopped reading: {count}"
        );
        for line in results.lines() {
            assert!(
                serde_json::from_str::<Value>(line).is_ok(),
                "a half result: {line:?}"
            );
        }
        assert!(self.said().contains("q0 drained after"), "{}", self.said());
    }
}

#[test]
fn the_first_interrupt_drains_what_is_in_flight() {
    stuck_job().drains_after(Signal::INT);
}

#[test]
fn a_termination_is_an_interrupt() {
    stuck_job().drains_after(Signal::TERM);
}

#[test]
fn the_second_interrupt_stops_at_once() {
    let mut job = stuck_job();
    signal(&job.child, Signal::INT);
    eventually("it drains", || job.said().contains("draining: "));
    signal(&job.child, Signal::INT);
    assert_eq!(exit_code(&mut job.child), Some(130), "{}", job.said());
    assert!(job.said().contains("q0 cancelled after"), "{}", job.said());
}

#[test]
fn an_interrupted_generation_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    fs::write(&path, "what was there before").unwrap();
    let name = path.display().to_string();
    let child = ardea(&[
        "nexmark",
        "generate",
        "--events",
        "1_000_000_000",
        "-o",
        &name,
    ])
    .spawn()
    .unwrap();
    eventually("it has begun to write", || {
        fs::read_dir(folder.path()).unwrap().count() == 2
    });
    signal(&child, Signal::INT);
    assert_eq!(finish(child).code, Some(130));
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["events.jsonl"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "what was there before");
}
