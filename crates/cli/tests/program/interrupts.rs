//! Ctrl-C: the first drains, the second stops at once; no partial results are left.
//!
//! Most jobs here write to a pipe that is not read, so they can't end, drained or not, until the
//! test reads.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::ardea::{ardea, events, eventually, exit_code, finish, signal};

/// More events than all queues of a job hold.
const EVENTS: u64 = 200_000;

/// Returns a file of [`EVENTS`] events, created once for all tests.
fn many_events() -> &'static str {
    static MADE: OnceLock<String> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let made = tempfile::tempdir_in(folder).unwrap();
        let kept = folder.join("events.jsonl");
        fs::rename(events(made.path(), EVENTS), &kept).unwrap();
        kept.display().to_string()
    })
}

/// Waits until the next signal counts separately: signals within 100 ms count as one.
fn let_the_next_count() {
    let sent = Instant::now();
    eventually("the next signal counts", || {
        sent.elapsed() > Duration::from_millis(200)
    });
}

struct Stuck {
    child: Child,
    out: BufReader<ChildStdout>,
    first_line: String,
    folder: tempfile::TempDir,
}

/// Starts a job that has begun to write and is blocked by its reader. Its messages go to a file.
fn stuck_job() -> Stuck {
    stuck_job_with(&[])
}

fn stuck_job_with(options: &[&str]) -> Stuck {
    let folder = tempfile::tempdir().unwrap();
    let input = many_events();
    let said = fs::File::create(folder.path().join("said")).unwrap();
    let query = ["nexmark", "run", "--query", "q0", "-i", input, "-o", "-"];
    let mut child = ardea(&[&query[..], options].concat())
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
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert_eq!(exit_code(&mut self.child), Some(4), "{}", self.said());
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
        assert!(
            self.said()
                .contains("it was stopped before its input ended"),
            "{}",
            self.said()
        );
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
    let_the_next_count();
    signal(&job.child, Signal::INT);
    assert_eq!(exit_code(&mut job.child), Some(130), "{}", job.said());
    assert!(job.said().contains("q0 cancelled after"), "{}", job.said());
}

#[test]
fn a_termination_sent_twice_at_once_as_timeout_does_is_one() {
    let job = stuck_job();
    signal(&job.child, Signal::INT);
    job.drains_after(Signal::TERM);
}

#[test]
fn with_json_what_is_said_of_an_interrupt_is_an_object() {
    let mut job = stuck_job_with(&["--json"]);
    signal(&job.child, Signal::INT);
    eventually("it drains", || job.said().contains("draining: "));
    let mut rest = String::new();
    job.out.read_to_string(&mut rest).unwrap();
    assert_eq!(exit_code(&mut job.child), Some(4));
    for line in job.said().lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}

#[test]
fn who_wants_to_hear_nothing_is_told_that_a_result_is_not_whole() {
    let mut job = stuck_job_with(&["-q"]);
    signal(&job.child, Signal::INT);
    let mut rest = String::new();
    job.out.read_to_string(&mut rest).unwrap();
    assert_eq!(exit_code(&mut job.child), Some(4));
    let said = job.said();
    assert!(
        said.starts_with("warning: q0 was stopped before its input ended"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn an_interrupt_after_the_end_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let input = events(folder.path(), 2_000);
    // More than a pipe holds, so that the program can't print its messages, and still runs when its
    // job is over.
    let long = folder.path().join("x".repeat(200));
    let output = long.display().to_string();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut filled = writer.try_clone().unwrap();
    rustix::io::ioctl_fionbio(&filled, true).unwrap();
    while std::io::Write::write(&mut filled, &[b'.'; 4096]).is_ok() {}
    while std::io::Write::write(&mut filled, b".").is_ok() {}
    rustix::io::ioctl_fionbio(&filled, false).unwrap();
    drop(filled);
    let query = [
        "--json", "nexmark", "run", "--query", "q1", "-i", &input, "-o", &output,
    ];
    let mut child = ardea(&query).stdout(writer).spawn().unwrap();
    eventually("the job is over, and its threads have gone", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
        let mut names = tasks
            .flatten()
            .map(|task| fs::read_to_string(task.path().join("comm")));
        long.exists() && !names.any(|name| name.is_ok_and(|name| name == "ardea-0\n"))
    });
    for _ in 0..2 {
        signal(&child, Signal::INT);
        let_the_next_count();
    }
    let mut reader = BufReader::new(reader);
    let mut told = String::new();
    reader.read_to_string(&mut told).unwrap();
    assert_eq!(exit_code(&mut child), Some(0), "{told}");
    assert!(told.contains("\"status\":\"completed\""));
}

#[test]
fn a_pipe_without_a_writer_does_not_hold_up_the_first_interrupt() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let pipe = pipe.display().to_string();
    let mut child = ardea(&["run", "wordcount", &pipe, "--progress"])
        .spawn()
        .unwrap();
    // The first line of progress shows that the job has started.
    let mut said = BufReader::new(child.stderr.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    signal(&child, Signal::INT);
    assert_eq!(exit_code(&mut child), Some(4));
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
