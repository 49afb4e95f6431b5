//! Tests of a job with a custom source and a custom sink that is killed at random moments.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The lines of each of the four files.
const LINES: usize = 50_000;
/// The number of times that the job is killed.
const KILLS: u64 = 12;
/// The timeout of the last attempt.
const TIMEOUT: Duration = Duration::from_secs(120);

fn start(folder: &Path) -> Child {
    let state = format!("checkpoints.folder={}", folder.join("state").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_own-connectors"));
    command.args(["run", "--set", "guarantee=exactly-once", "--set", &state]);
    command.args([
        "--set",
        "checkpoints.every=20ms",
        "--set",
        "checkpoints.pause=0s",
        "--",
    ]);
    command.arg(folder.join("log")).arg(folder.join("ledger"));
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().expect("it starts")
}

/// Waits at most `within` for the job to end; returns true if it has completed.
fn ends(job: &mut Child, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    while Instant::now() < deadline {
        if let Some(status) = job.try_wait().expect("a child") {
            assert!(status.success(), "it failed by itself: {status}");
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    false
}

/// Returns the lines of all committed files, sorted.
fn published(ledger: &Path) -> Vec<String> {
    let files = fs::read_dir(ledger).expect("a folder");
    let paths = files.map(|file| file.expect("a file").path());
    let committed = paths.filter(|path| path.extension().is_some_and(|kind| kind == "txt"));
    let texts: Vec<String> = committed
        .map(|path| fs::read_to_string(path).expect("a text"))
        .collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut lines: Vec<String> = lines.map(String::from).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_job_that_is_killed_at_random_moments_writes_each_line_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path();
    fs::create_dir(folder.join("log")).expect("created");
    fs::create_dir(folder.join("ledger")).expect("created");
    let mut expected = Vec::new();
    for partition in 0..4 {
        let lines = (0..LINES).map(|number| format!("line {partition} {number}\n"));
        let text: String = lines.collect();
        fs::write(folder.join(format!("log/{partition}")), &text).expect("written");
        expected.extend(text.lines().map(str::to_uppercase));
    }
    expected.sort_unstable();

    let mut seed = u64::from(std::process::id());
    println!("seed {seed}");
    let (mut has_ended, mut kills) = (false, 0);
    while !has_ended && kills < KILLS {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut job = start(folder);
        has_ended = ends(&mut job, Duration::from_millis(30 + (seed >> 33) % 300));
        if !has_ended {
            // Sends SIGKILL.
            job.kill().expect("it runs");
            job.wait().expect("a child");
            kills += 1;
        }
    }
    println!(
        "killed {kills} times, {} lines published",
        published(&folder.join("ledger")).len()
    );
    assert!(
        has_ended || ends(&mut start(folder), TIMEOUT),
        "it does not end"
    );
    let published = published(&folder.join("ledger"));
    assert_eq!(published.len(), expected.len());
    assert!(published == expected);
}
