//! Exactly-once results of a step with state, while its processes and its job are killed.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ardea_checkpoint::local::{FaultTolerance, JobEnd, RunFaultTolerant};
use ardea_connectors::{files, generate};
use ardea_core::Guarantee;
use ardea_pipeline::Pipeline;
use rustix::process::{Pid, Signal, kill_process};

use crate::guest::command;

/// The number of keys.
pub const KEYS: i64 = 50;
const RECORDS: i64 = 20_000;
const FOLDER: &str = "ARDEA_TEST_FOLDER";
const TIMEOUT: Duration = Duration::from_secs(240);

/// Runs the job with its files in `folder`.
fn run(folder: &Path) -> ardea_core::Result<JobEnd> {
    let p = Pipeline::new("counts");
    let numbers = generate::at_rate(10_000, |number| number as i64)
        .limit(RECORDS as u64)
        .build();
    let pids = folder.join("pids").display().to_string();
    p.read_from(numbers)
        .key_by(|number: &i64| number % KEYS)
        .in_process::<(i64, u64)>("counts", command("count").parameter("pids", pids))
        .parallelism(2)
        .write_to(files::write_json_lines(folder.join("out.jsonl")));
    let tolerance = FaultTolerance::in_folder(folder.join("state"))
        .guarantee(Guarantee::ExactlyOnce)
        .every(Duration::from_millis(40))
        .pause(Duration::ZERO)
        .attempts(1_000);
    p.run_fault_tolerant(&tolerance).map(|outcome| outcome.end)
}

/// Checks that each count of each key was published once.
fn check(folder: &Path) {
    let mut counts = BTreeMap::<i64, Vec<u64>>::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // A killed attempt may leave a part that was not committed.
        if name.starts_with("out") && !name.ends_with(".part") {
            for line in fs::read_to_string(&path).unwrap().lines() {
                let (key, count): (i64, u64) = serde_json::from_str(line).unwrap();
                counts.entry(key).or_default().push(count);
            }
        }
    }
    let expected: Vec<u64> = (1..=(RECORDS / KEYS) as u64).collect();
    assert_eq!(counts.len() as i64, KEYS);
    for (key, mut counts) in counts {
        counts.sort_unstable();
        assert!(counts == expected, "key {key}: {} counts", counts.len());
    }
}

/// Returns the process of an instance that started last.
fn newest_process(folder: &Path) -> Option<Pid> {
    let pids = fs::read_to_string(folder.join("pids")).ok()?;
    let newest = pids.lines().last()?.parse().ok()?;
    Pid::from_raw(newest)
}

#[test]
fn results_are_exact_while_processes_of_instances_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let killer = {
        let (folder, is_over) = (folder.path().to_owned(), Arc::clone(&is_over));
        thread::spawn(move || {
            let (mut kills, mut last) = (0, None);
            while !is_over.load(Ordering::Acquire) {
                thread::park_timeout(Duration::from_millis(150));
                let newest = newest_process(&folder);
                if newest != last
                    && let Some(process) = newest
                    && kill_process(process, Signal::KILL).is_ok()
                {
                    (kills, last) = (kills + 1, newest);
                }
            }
            kills
        })
    };
    let end = run(folder.path()).unwrap();
    is_over.store(true, Ordering::Release);
    let kills = killer.join().unwrap();
    assert_eq!(end, JobEnd::Completed);
    assert!(kills >= 3, "only {kills} processes were killed");
    check(folder.path());
}

#[test]
fn the_process_of_a_job() {
    let Some(folder) = env::var_os(FOLDER) else {
        return;
    };
    match run(&PathBuf::from(folder)) {
        Ok(JobEnd::Completed | JobEnd::CompletedBefore) => exit(0),
        outcome => {
            eprintln!("{outcome:?}");
            exit(1)
        }
    }
}

fn start_job(folder: &Path) -> Child {
    let mut job = Command::new(env::current_exe().unwrap());
    job.args(["guarantees::the_process_of_a_job", "--exact", "--nocapture"]);
    job.env(FOLDER, folder).spawn().unwrap()
}

/// Waits at most `within` for the end of the job; returns true if it has ended.
fn ends(job: &mut Child, within: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < within {
        if let Some(status) = job.try_wait().unwrap() {
            assert!(status.success(), "it failed by itself: {status}");
            return true;
        }
        thread::park_timeout(Duration::from_millis(2));
    }
    false
}

#[test]
fn results_are_exact_while_the_job_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut has_ended = false;
    for life in 0..6 {
        let mut job = start_job(folder.path());
        has_ended = ends(&mut job, Duration::from_millis(300 + 150 * life));
        if has_ended {
            break;
        }
        job.kill().unwrap();
        job.wait().unwrap();
    }
    if !has_ended {
        let mut job = start_job(folder.path());
        assert!(ends(&mut job, TIMEOUT), "the job does not end");
    }
    check(folder.path());
}
