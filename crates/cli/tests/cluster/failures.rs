//! Instances that fail while their containers are healthy.

use std::fs;

use serde_json::Value;

use crate::arena::Arena;
use crate::deaths::NumbersJob;
use crate::processes;

/// Returns the description of a vertex of `numbers`.
fn vertex(arena: &Arena, name: &str) -> Value {
    vertex_of(arena, "numbers", name)
}

fn vertex_of(arena: &Arena, job: &str, name: &str) -> Value {
    let described = arena.json(&format!("describe {job}"));
    let vertices = described["vertices"].as_array().unwrap();
    let found = vertices.iter().find(|it| it["name"] == name);
    found.unwrap().clone()
}

pub fn an_instance_that_fails_is_made_anew_alone_and_nothing_is_lost() {
    let job = NumbersJob::begun(1_000);
    let arena = &job.arena;
    job.until_more();
    let workers = arena.workers("numbers");
    let passed = || arena.metric("numbers", "pass", "ardea_records_in_total");
    for times in 1..=3 {
        let before = passed();
        fs::write(job.data.join("trip"), "").unwrap();
        arena.until("the trip", || !job.data.join("trip").exists());
        arena.until("a restart that is told", || {
            vertex(arena, "pass")["restarts"] == times
        });
        job.until_more();
        assert!(passed() >= before, "its counters go on");
    }
    assert_eq!(
        arena.workers("numbers"),
        workers,
        "no container was restarted"
    );
    for other in ["numbers", "record"] {
        assert_eq!(vertex(arena, other)["restarts"], 0, "{other}");
        assert_eq!(vertex(arena, other)["exceptions"], 0, "{other}");
    }
    assert_eq!(vertex(arena, "pass")["exceptions"], 3);
    let told = |name| arena.metric("numbers", "pass", name);
    assert_eq!(told("ardea_instance_restarts_total"), 3.0);
    assert_eq!(told("ardea_exceptions_total"), 3.0);
    let lost = arena.samples("numbers", "ardea_messages_failed_total");
    let lost = lost.iter().filter(|(labels, _)| labels["reason"] == "lost");
    // Pending messages failed at once, and not after their timeout.
    assert!(lost.map(|(_, count)| count).sum::<f64>() >= 3.0);
    let described = arena.json("describe numbers");
    let problem = &described["problems"][0];
    let message = problem["message"].as_str().unwrap();
    assert!(
        message.contains("ARD-201") && message.contains("trips over"),
        "{message}"
    );
    job.end();
}

pub fn an_instance_that_fails_again_and_again_ends_its_container_with_the_reason() {
    let job = NumbersJob::begun_with("--set worker.instance_restarts=3", 1_000);
    let arena = &job.arena;
    job.until_more();
    let before = arena.workers("numbers");
    fs::write(job.data.join("trip-always"), "").unwrap();
    arena.until("the end of a container", || {
        arena.workers("numbers") != before
    });
    arena.until("the reason", || {
        let described = arena.look("numbers").unwrap_or_default();
        let problems = described["problems"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        problems.iter().any(|problem| {
            let message = problem["message"].as_str().unwrap_or_default();
            message.contains("ARD-204")
                && message.contains("4 times in a row, and is not started again")
        })
    });
    fs::remove_file(job.data.join("trip-always")).unwrap();
    arena.until_phase("numbers", "running");
    job.until_more();
    job.end();
}

pub fn the_process_of_an_instance_is_shown_and_what_ends_it_is_counted() {
    const ISOLATED: &str = "
name: isolated
spouts:
  - { name: words, component: words, settings: { rate: 500 } }
bolts:
  - { name: counts, component: count, isolation: process, inputs: [{ from: words, grouping: fields, fields: [word] }] }
  - { name: out, component: print, inputs: [{ from: counts, grouping: global }] }
";
    let arena = Arena::with_hosts(1);
    arena.write("isolated.yaml", ISOLATED);
    arena.succeed("submit isolated.yaml");
    let process = || {
        let described = arena.look("isolated")?;
        let container = &described["containers"][0];
        container["instance_processes"]["counts#0"].as_i64()
    };
    arena.until("its process is shown", || process().is_some());
    let first = process().unwrap();
    let text = arena.succeed("describe isolated");
    assert!(text.contains(&format!("counts#0 (pid {first})")), "{text}");
    let counts = || vertex_of(&arena, "isolated", "counts");
    assert_eq!(counts()["exceptions"], 0);
    processes::kill(i32::try_from(first).unwrap());
    arena.until("another process", || {
        process().is_some_and(|it| it != first)
    });
    arena.until("the restart is told", || counts()["restarts"] == 1);
    assert_eq!(counts()["exceptions"], 1);
    let failures = arena.samples("isolated", "ardea_exceptions_total");
    let code = |(labels, count): &(Value, f64)| (labels["code"].clone(), *count);
    let codes: Vec<_> = failures.iter().map(code).collect();
    assert_eq!(codes, [(Value::from("ARD-205"), 1.0)]);
    let top = arena.json("top isolated --once");
    let vertices = top["vertices"].as_array().unwrap();
    let counts = vertices.iter().find(|it| it["vertex"] == "counts").unwrap();
    assert_eq!(counts["problems"], 1, "{top}");
    arena.succeed("kill isolated --yes");
}
