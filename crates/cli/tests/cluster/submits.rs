//! Submissions that are interrupted.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::arena::Arena;
use crate::processes::Role;

/// The number of attempts.
const TRIES: u32 = 20;

/// Returns a job that prints the lines of a file.
fn lines_of(file: &str) -> String {
    format!(
        "
name: lines
spouts: [{{ name: lines, component: lines, settings: {{ file: {file} }} }}]
bolts: [{{ name: out, component: print, inputs: [{{ from: lines, grouping: shuffle }}] }}]
"
    )
}

pub fn what_a_submitted_job_fails_of_is_told_by_submit_and_list() {
    let arena = Arena::with_hosts(1);
    arena.write("lines.yaml", &lines_of("/nowhere/at-all"));
    let told = arena.fail("submit lines.yaml");
    let reason = "lines#0 fails: cannot read /nowhere/at-all";
    assert!(told.starts_with("error: ARD-301: "), "{told}");
    assert!(told.contains(reason), "{told}");

    let listed = arena.json("list");
    let problem = &listed[0]["last_problem"];
    assert_eq!(problem["instance"], "lines#0");
    assert!(problem["count"].as_u64() >= Some(2), "{listed}");
    let listed = arena.succeed("list");
    assert!(listed.contains("lines#0: ARD-301: cannot"), "{listed}");

    let greedy = lines_of("/dev/null").replace("name: lines,", "name: lines, cpu: 9999,");
    arena.write("greedy.yaml", &greedy);
    let told = arena.fail("submit greedy.yaml --name greedy");
    assert!(
        told.contains("asks for 9999 cpu, and the machine has"),
        "{told}"
    );
    assert_eq!(arena.json("list").as_array().map(Vec::len), Some(1));

    arena.succeed("kill lines --yes");
    let described = arena.json("describe lines");
    assert_eq!(described["ending"], "killed");
    assert_eq!(described["problems"][0]["instance"], "lines#0");
}

pub fn a_job_that_is_over_is_told_by_submit_and_remembered() {
    let arena = Arena::with_hosts(1);
    let file = arena.path().join("lines.yaml");
    arena.write("lines.yaml", &lines_of(&file.display().to_string()));
    for number in 1..=2 {
        let told = arena.json("submit lines.yaml");
        assert_eq!(told["phase"], "finished", "{told}");
        arena.until("the end of what is left of it", || {
            arena.json("list").as_array().is_some_and(Vec::is_empty)
        });
        let described = arena.json("describe lines");
        assert_eq!(described["submission"], told["submission"]);
        assert_eq!(described["ending"], "finished");
        let all = arena.json("list --all");
        assert_eq!(all["past"].as_array().unwrap().len(), number);
        assert_eq!(all["past"][0]["submission"], told["submission"]);
    }
    let refused = arena.fail("describe line");
    assert!(refused.contains("ARD-604"), "{refused}");
}

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
    assert!(
        !arena
            .cluster()
            .join("state/tree/jobs/whole/definition")
            .exists()
    );
    assert_eq!(packages(&arena), 1, "all are the same program");
}

/// Returns the number of files in the package store.
fn packages(arena: &Arena) -> usize {
    fs::read_dir(arena.cluster().join("packages"))
        .unwrap()
        .count()
}
