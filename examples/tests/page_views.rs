//! Tests of active-active replicas that are killed one after the other.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ardea::connect::active_active::replicas;
use ardea::core::{ErrorCode, Timestamp};
use ardea_examples::page_views::build;

/// The timeout of expected results.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running replica, killed on drop.
struct Running(Child);

impl Running {
    fn start(folder: &Path, number: u32) -> Running {
        let state = folder.join(format!("state-{number}"));
        let state = format!("checkpoints.folder={}", state.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_page-views"));
        command.args(["run", "--set", "guarantee=exactly-once"]);
        command.args(["--set", "checkpoints.every=100ms", "--set", &state, "--"]);
        command.arg(folder.join("log")).arg(folder.join("results"));
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Running(child.expect("it starts"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Appends requests of three pages to the log, 20 per second.
fn append_requests(folder: &Path, seconds: Range<u64>) {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("log"));
    let times = seconds.flat_map(|second| (0..20).map(move |n| (second * 1_000 + n * 50, n % 3)));
    let lines: String = times
        .map(|(time, page)| format!("{time} /{page}\n"))
        .collect();
    log.expect("a log")
        .write_all(lines.as_bytes())
        .expect("written");
}

/// Returns the final results for a log of `seconds` seconds, whose lines may be a second out of
/// order.
fn expected(seconds: i64) -> String {
    let told = (0..seconds - 2).flat_map(|second| {
        let start = Timestamp::from_secs(second);
        [7, 7, 6]
            .iter()
            .enumerate()
            .map(move |(page, views)| format!("{start} /{page} {views}\n"))
    });
    told.collect()
}

fn wait_for_results(folder: &Path, seconds: i64) {
    let expected = expected(seconds);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let results = fs::read_to_string(folder.join("results")).unwrap_or_default();
        assert!(expected.starts_with(&results), "{results}");
        if results == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{seconds}: {results}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn a_copy_that_is_killed_is_not_missed_and_may_come_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path();
    append_requests(folder, 0..10);
    let first = Running::start(folder, 1);
    let second = Running::start(folder, 2);
    wait_for_results(folder, 10);
    drop(first);
    append_requests(folder, 10..20);
    wait_for_results(folder, 20);
    let first = Running::start(folder, 1);
    append_requests(folder, 20..30);
    wait_for_results(folder, 30);
    drop(second);
    append_requests(folder, 30..40);
    wait_for_results(folder, 40);
    let alive = replicas(folder.join("results")).expect("known");
    let alive = alive.iter().filter(|twin| twin.is_alive);
    assert_eq!(alive.count(), 1);
    drop(first);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let refused = build(&["access.log".to_string()]).expect_err("refused");
    assert_eq!(refused.code(), ErrorCode::InvalidConfig);
}
