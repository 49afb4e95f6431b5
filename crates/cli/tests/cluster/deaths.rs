//! Processes of a job that are killed with SIGKILL.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::arena::Arena;
use crate::numbers::Ledger;
use crate::processes::{kill, kill_group};

/// A job `numbers` in three containers, and the folder of its records.
pub struct NumbersJob {
    pub arena: Arena,
    pub data: PathBuf,
}

impl NumbersJob {
    /// Submits the job with `rate` numbers per second.
    pub fn begun(rate: u32) -> Self {
        NumbersJob::begun_with("", rate)
    }

    /// Like [`begun`](Self::begun), with the options `options`.
    pub fn begun_with(options: &str, rate: u32) -> Self {
        NumbersJob::begun_told(rate, |_| options.to_string())
    }

    /// Like [`begun`](Self::begun), with options that may contain the folder of the records.
    pub fn begun_told(rate: u32, options: impl FnOnce(&Path) -> String) -> Self {
        NumbersJob::begun_in(Arena::with_hosts(2), rate, options)
    }

    /// Like [`begun_told`](Self::begun_told), in the cluster `arena`.
    pub fn begun_in(arena: Arena, rate: u32, options: impl FnOnce(&Path) -> String) -> Self {
        NumbersJob::begun_as(arena, &format!("rate={rate}"), options)
    }

    /// Like [`begun_in`](Self::begun_in), with other arguments of the job.
    pub fn begun_as(arena: Arena, shape: &str, options: impl FnOnce(&Path) -> String) -> Self {
        let data = arena.path().join("data");
        fs::create_dir(&data).unwrap();
        let arguments = format!("{} {shape}", data.display());
        let options = options(&data);
        arena.submit_numbers(&format!("--set job.containers=3 {options}"), &arguments);
        NumbersJob { arena, data }
    }

    /// Returns the job's records.
    pub fn ledger(&self) -> Ledger {
        Ledger(self.data.clone())
    }

    /// Waits until the job has made progress.
    pub fn until_more(&self) {
        let ledger = self.ledger();
        let goal = ledger.records() + 300;
        self.arena
            .until("more numbers", || ledger.records() >= goal);
    }

    /// Ends the job, and checks that no number is missing.
    pub fn end(&self) {
        let arena = &self.arena;
        let ledger = self.ledger();
        ledger.enough();
        arena.until("the end of numbers", || {
            arena.json("list").as_array().is_some_and(Vec::is_empty)
        });
        assert!(ledger.is_whole(), "{:?}", ledger.positions());
        ledger.nothing_is_lost();
        assert_eq!(arena.workers("numbers"), []);
    }

    /// Returns the container of an instance.
    pub fn container_of(&self, instance: &str) -> u64 {
        let described = self.arena.json("describe numbers");
        let containers = described["containers"].as_array().unwrap();
        let has = |it: &&Value| {
            it["instances"]
                .as_array()
                .unwrap()
                .contains(&instance.into())
        };
        containers.iter().find(has).unwrap()["id"].as_u64().unwrap()
    }

    /// Returns the process of a container.
    pub fn worker(&self, container: u64) -> Option<i32> {
        let workers = self.arena.workers("numbers");
        let found = workers.iter().find(|(id, _)| *id == container);
        found.map(|(_, pid)| *pid)
    }

    /// Kills a container's process, waits until it is replaced and numbers flow again, and checks
    /// that no other process was replaced.
    pub fn kill_container(&self, container: u64, kill: fn(i32)) {
        let before = self.arena.workers("numbers");
        let victim = self.worker(container).unwrap();
        kill(victim);
        self.arena.until("a new worker", || {
            let now = self.worker(container);
            now.is_some_and(|now| now != victim)
        });
        self.arena.until_phase("numbers", "running");
        self.until_more();
        let others = |workers: Vec<(u64, i32)>| -> Vec<(u64, i32)> {
            let others = workers.into_iter().filter(|it| it.0 != container);
            others.collect()
        };
        assert_eq!(others(self.arena.workers("numbers")), others(before));
    }
}

pub fn with_acks_no_death_loses_a_number() {
    let job = NumbersJob::begun(1_000);
    let arena = &job.arena;
    job.until_more();
    let with_spout = job.container_of("numbers#0");
    let without = (1..=3).find(|container| *container != with_spout);
    job.kill_container(without.unwrap(), kill);
    job.kill_container(with_spout, kill_group);

    // All hosts at once: the containers keep running, and the next hosts find them and know their
    // history.
    let runs_since = arena.json("describe numbers")["since_ms"].clone();
    arena.until("handed over: two restarts", || {
        let told = arena.json("metastore dump --below /jobs/numbers/chronicle");
        let lives = told["tree"]["value"]["events"]["lives"]
            .as_object()
            .cloned();
        let restarts = lives.unwrap_or_default();
        let restarts = restarts.values().filter_map(|it| it["restarts"].as_u64());
        restarts.sum::<u64>() == 2
    });
    let workers = arena.workers("numbers");
    let hosts = arena.hosts();
    hosts.iter().for_each(|(_, pid)| kill(*pid));
    job.until_more();
    arena.succeed("cluster start --workers 2");
    arena.until_phase("numbers", "running");
    assert_eq!(arena.workers("numbers"), workers, "nothing was restarted");
    // A new leader reads the history of earlier ones while it already leads.
    arena.until("what was before is known", || {
        let described = arena.json("describe numbers");
        described["since_ms"] == runs_since && restarts(&described) == 2
    });
    job.kill_container(without.unwrap(), kill);

    assert_eq!(restarts(&arena.json("describe numbers")), 3);
    job.end();
    let past = arena.json("describe numbers");
    assert_eq!(past["ending"], "finished");
    // Containers that later hosts have found again, and that ended as they should, are no problem.
    let problems = past["problems"].as_array().unwrap().iter();
    let killed: BTreeSet<&str> = problems.filter_map(|it| it["instance"].as_str()).collect();
    let expected = [without.unwrap(), with_spout].map(|id| format!("container {id}"));
    assert_eq!(killed, expected.iter().map(String::as_str).collect());
}

/// Returns the number of restarts of a job's containers.
fn restarts(described: &Value) -> u64 {
    let containers = described["containers"].as_array().unwrap().iter();
    containers.filter_map(|it| it["restarts"].as_u64()).sum()
}
