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

pub fn a_busy_step_gets_instances_and_gives_them_back_when_it_is_idle() {
    let settings = "--set elasticity.policy=utilization --set elasticity.window=1s";
    changes_with_its_load(settings, "elasticity: record 2 to");
}

pub fn the_optimizer_gives_a_busy_step_instances_and_takes_them_back() {
    let settings = "--set optimizer.mode=apply --set optimizer.window=1s";
    let settings = format!("{settings} --set optimizer.cooldown=1s");
    changes_with_its_load(&settings, "optimizer: parallelism: record: record 2 to");
}

fn changes_with_its_load(settings: &str, event: &str) {
    let bounds = "--set elasticity.least_instances=2 --set elasticity.most_instances=4";
    let job = NumbersJob::begun_with(&format!("{settings} {bounds}"), 1_000);
    let arena = &job.arena;
    job.until_more();
    let count = || {
        let described = arena.json("describe numbers");
        let vertices = described["vertices"].as_array().unwrap();
        let record = vertices.iter().find(|it| it["name"] == "record").unwrap();
        record["parallelism"].as_u64()
    };
    assert_eq!(count(), Some(2));
    let slow = job.data.join("slow");
    fs::write(&slow, "").unwrap();
    arena.until("more instances", || count() == Some(4));
    fs::remove_file(&slow).unwrap();
    arena.until("fewer instances", || count() == Some(2));
    let described = arena.succeed("describe numbers");
    assert!(described.contains(event), "{described}");
    arena.until_phase("numbers", "running");
    job.until_more();
    job.end();
}

pub fn a_host_that_joins_gets_a_part_of_the_job_and_one_that_is_drained_none() {
    let options =
        "--set cluster.scheduler=hosts --set elasticity.policy=hosts --set elasticity.window=1s";
    let job = NumbersJob::begun_with(options, 1_000);
    let arena = &job.arena;
    job.until_more();
    let containers = || {
        let described = arena.json("describe numbers");
        described["containers"].as_array().map(Vec::len)
    };
    arena.until("a container on each of both hosts", || {
        containers() == Some(2)
    });
    arena.succeed("cluster start --workers 3");
    arena.until("a container on each of three hosts", || {
        containers() == Some(3)
    });
    let host = arena.hosts().remove(0).0;
    arena.succeed(&format!("cluster drain {host}"));
    arena.until("none on the drained host", || containers() == Some(2));
    arena.until_phase("numbers", "running");
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
