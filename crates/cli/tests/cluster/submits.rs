//! Submitting that is cut off.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::arena::Arena;
use crate::processes::Role;

/// How often it is tried.
const TRIES: u32 = 20;

pub fn a_submit_that_is_killed_leaves_a_whole_job_or_none() {
    let arena = Arena::with_hosts(1);
    let began = Instant::now();
    arena.succeed("submit word-count.yaml --name whole");
    let whole = began.elapsed();

    for number in 0..TRIES {
        let mut command = arena.begin(&format!("submit word-count.yaml --name try-{number}"));
        let until = Instant::now() + whole * number / TRIES;
        while Instant::now() < until {
            thread::park_timeout(Duration::from_millis(1));
        }
        command.kill().unwrap();
        command.wait().unwrap();
    }

    arena.until("running: all jobs that there are", || {
        let listed = arena.json("list");
        let mut jobs = listed.as_array().unwrap().iter();
        jobs.all(|job| job["phase"] == "running" && job["worker_count"] == 1)
    });
    let listed = arena.json("list");
    let jobs = listed.as_array().unwrap().iter();
    let jobs: BTreeSet<String> = jobs
        .map(|job| job["name"].as_str().unwrap().to_string())
        .collect();
    assert!(jobs.contains("whole"));
    let running: BTreeSet<String> = arena
        .processes()
        .into_iter()
        .filter_map(|process| match process.role {
            Role::Worker(job, _) => Some(job),
            _ => None,
        })
        .collect();
    assert_eq!(running, jobs, "each job runs, and nothing else does");

    arena.succeed("cluster stop --kill-jobs");
    assert_eq!(arena.processes(), []);
    assert!(!arena.cluster().join("state/tree/jobs/whole").exists());
    assert_eq!(packages(&arena), 1, "all are the same program");
}

/// How many files the package store has.
fn packages(arena: &Arena) -> usize {
    fs::read_dir(arena.cluster().join("packages"))
        .unwrap()
        .count()
}
