//! Tests of a job in columns that is killed at random moments.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ardea_examples::daily_delays::build;

/// The flights of the input.
const FLIGHTS: u64 = 300_000;
/// The number of times that the job is killed.
const KILLS: u64 = 10;
/// The timeout of the last attempt.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Writes flights in the order of their hours. Some did not leave.
fn write_flights(path: &Path) {
    let lines = (0..FLIGHTS).map(|number| {
        let hour = number / 200;
        let (day, hour) = (1 + hour / 24, hour % 24);
        let (month, day) = (1 + day / 28, 1 + day % 28);
        let carrier = ["AA", "DL", "UA", "B6"][(number % 7 % 4) as usize];
        let delay = match number % 11 {
            0 => "NA".to_string(),
            _ => (number * 7 % 90).to_string(),
        };
        format!("{number},{carrier},{delay},2013-{month:02}-{day:02}T{hour:02}:00:00Z\n")
    });
    let header = String::from("flight,carrier,dep_delay,time_hour\n");
    let text: String = [header].into_iter().chain(lines).collect();
    fs::write(path, text).expect("written");
}

fn start(folder: &Path) -> Child {
    let state = format!("checkpoints.folder={}", folder.join("state").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_daily-delays"));
    command.args(["run", "--set", "guarantee=exactly-once", "--set", &state]);
    command.args(["--set", "checkpoints.every=20ms"]);
    command.args(["--set", "checkpoints.pause=0s", "--"]);
    command.arg(folder.join("flights.csv"));
    command.arg(folder.join("delays.jsonl"));
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

fn sorted_lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).expect("a text");
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_job_in_columns_that_is_killed_at_random_moments_has_the_results_of_one_that_is_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path();
    write_flights(&folder.join("flights.csv"));
    let paths = ["flights.csv", "expected.jsonl"].map(|name| folder.join(name));
    let arguments = paths.each_ref().map(|path| path.display().to_string());
    build(&arguments).expect("a job").run().expect("results");
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
    println!("killed {kills} times");
    let is_complete = has_ended || ends(&mut start(folder), TIMEOUT);
    assert!(is_complete, "it does not end");
    let results = sorted_lines(&folder.join("delays.jsonl"));
    assert!(results.len() > 200, "{}", results.len());
    assert!(results == sorted_lines(&paths[1]));
}
