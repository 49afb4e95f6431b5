//! Changes of running jobs by users.

use std::fs;

use serde_json::Value;

use crate::arena::Arena;
use crate::deaths::NumbersJob;
use crate::processes;

pub fn an_update_under_load_leaves_others_alone_and_loses_nothing() {
    let job = NumbersJob::begun(1_000);
    let arena = &job.arena;
    job.until_more();
    let before = arena.workers("numbers");
    let lives = lives(arena);

    for count in [4, 2] {
        arena.succeed(&format!("rescale numbers pass={count}"));
        let described = arena.json("describe numbers");
        let vertices = described["vertices"].as_array().unwrap();
        let pass = vertices.iter().find(|it| it["name"] == "pass").unwrap();
        assert_eq!(pass["parallelism"], count);
        let now = arena.workers("numbers");
        assert!(
            before.iter().all(|it| now.contains(it)),
            "{before:?} {now:?}"
        );
        assert!(lives.iter().all(|it| self::lives(arena).contains(it)));
        job.until_more();
    }
    arena.succeed("rescale numbers --parallelism pass=3");
    job.until_more();
    let refused = arena.fail("rescale numbers pass=2 --parallelism pass=3");
    assert!(refused.contains("named twice"), "{refused}");
    let refused = arena.fail("rescale numbers pas=2");
    assert!(refused.contains("did you mean pass?"), "{refused}");
    assert_eq!(refused.matches("ARD-").count(), 1, "{refused}");
    let refused = arena.fail("rescale numbers numbers=16385");
    assert!(refused.contains("allows 10000 of a vertex"), "{refused}");
    job.end();
}

pub fn an_update_ends_although_a_container_dies_in_it() {
    let job = NumbersJob::begun_with("--set worker.instance_restarts=100", 1_000);
    let arena = &job.arena;
    job.until_more();
    arena.succeed("rescale numbers pass=4");
    let trips = job.data.join("trip-always");
    fs::write(&trips, "").unwrap();
    let restarts = || arena.metric("numbers", "pass", "ardea_instance_restarts_total");
    arena.until("failing", || restarts() > 8.0);
    // Nothing passes, so the routes can't be switched yet.
    let mut update = arena.begin("rescale numbers pass=2");
    arena.until_phase("numbers", "updating");
    let container = job.container_of("record#1");
    let before = job.worker(container).unwrap();
    processes::kill(before);
    arena.until("there again", || {
        let now = job.worker(container);
        now.is_some_and(|now| now != before)
    });
    fs::remove_file(&trips).unwrap();
    arena.until_phase("numbers", "running");
    assert!(update.wait().unwrap().success());
    job.until_more();
    job.end();
}

/// Returns the containers of `numbers`, each with the number of its attempt.
fn lives(arena: &Arena) -> Vec<(Value, Value)> {
    let described = arena.json("describe numbers");
    let containers = described["containers"].as_array().unwrap();
    let life = |it: &Value| (it["id"].clone(), it["incarnation"].clone());
    containers.iter().map(life).collect()
}

pub fn a_job_is_paused_and_its_containers_are_restarted_one_by_one() {
    let arena = Arena::with_hosts(1);
    arena.succeed("submit word-count.yaml --set job.containers=2");
    let rate = || {
        let top = arena.json("top word-count --once");
        let vertices = top["vertices"].as_array().unwrap();
        let words = vertices.iter().find(|it| it["vertex"] == "words").unwrap();
        words["records_out_per_s"].as_f64()
    };
    arena.until("emitting", || rate().is_some_and(|rate| rate > 0.0));
    arena.succeed("pause word-count");
    arena.until_phase("word-count", "paused");
    arena.until("quiet", || rate() == Some(0.0));

    let before = arena.workers("word-count");
    arena.succeed("restart word-count 2");
    arena.until("another process in container 2", || {
        let now = arena.workers("word-count");
        now.len() == 2 && now[1] != before[1]
    });
    assert_eq!(arena.workers("word-count")[0], before[0]);
    arena.until_phase("word-count", "paused");
    assert_eq!(rate(), Some(0.0), "what is restarted is still paused");

    arena.succeed("resume word-count");
    arena.until_phase("word-count", "running");
    arena.until("emitting again", || rate().is_some_and(|rate| rate > 0.0));
    let refused = arena.fail("restart word-count 7");
    assert!(refused.contains('7'), "{refused}");
}
