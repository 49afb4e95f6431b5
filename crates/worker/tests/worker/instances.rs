//! Instances in separate processes.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_coordination::control::WorkerStart;
use ardea_engine::Job;

use crate::containers::{over_each_transport, process, start, thread};
use crate::jobs::{Adding, Relaying};
use crate::master::{Master, PATIENCE, plan};
use crate::spread::{embedded, runtime};

pub async fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut looks = tokio::time::interval(Duration::from_millis(2));
    while !done() {
        assert!(start.elapsed() < PATIENCE, "nothing comes any more");
        looks.tick().await;
    }
}

pub fn isolating(mut start: WorkerStart, vertices: &[&str]) -> WorkerStart {
    let names = vertices.join(",");
    start.settings.insert("test.isolated".into(), names);
    start
}

fn is_there(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// Returns the processes that numbers have passed through, in order.
fn relays(job: &Relaying) -> Vec<u32> {
    let results = job.results.lock().unwrap();
    let mut relays: Vec<u32> = results.iter().map(|(_, by)| *by as u32).collect();
    relays.dedup();
    relays
}

fn kill(process: u32) {
    let killed = Command::new("kill")
        .args(["-9", &process.to_string()])
        .status();
    assert!(killed.unwrap().success());
}

#[test]
fn an_instance_whose_process_is_killed_runs_again_and_nothing_else_was_restarted() {
    over_each_transport(kill_instances);
}

fn kill_instances() {
    runtime().block_on(async {
        let plan = plan(&[(1, &[("ticks", 0), ("list", 0)]), (2, &[("relay", 0)])]);
        let mut master = Master::start(plan).await;
        let job = Arc::new(Relaying {
            isolated: vec!["relay".into()],
            ..Relaying::default()
        });
        let worker = |container| {
            let job: Arc<dyn Job> = Arc::<Relaying>::clone(&job);
            thread(
                isolating(start(container, 1, &master.address), &["relay"]),
                job,
            )
        };
        let workers = [worker(1), worker(2)];
        master.start_reading().await;
        for lives in 1..=3 {
            until(|| relays(&job).len() == lives).await;
            let before = job.count();
            until(|| job.count() > before + 200).await;
            let relay = relays(&job)[lives - 1];
            assert_ne!(relay, std::process::id());
            kill(relay);
        }
        until(|| relays(&job).len() == 4).await;
        master
            .listen_until(|master| master.problems.len() >= 3)
            .await;
        assert!(
            master.problems[0].contains("signal 9"),
            "{:?}",
            master.problems
        );
        assert!(workers.iter().all(|worker| !worker.is_finished()));
        let results = job.results.lock().unwrap().clone();
        let in_order = results.is_sorted_by(|(one, _), (other, _)| one < other);
        assert!(
            in_order,
            "numbers may be lost with a process, but not doubled"
        );
        let last = relays(&job)[3];
        master.say_farewell().await;
        for worker in workers {
            worker.join().unwrap().unwrap();
        }
        until(|| !is_there(last)).await;
    });
}

#[test]
fn a_job_of_isolated_instances_gives_what_it_gives_in_one_process() {
    let total = 30_000;
    let expected = embedded(total);
    for isolated in [&["sums"][..], &["numbers"], &["numbers", "sums"]] {
        let results = runtime().block_on(async {
            let plan = plan(&[
                (1, &[("numbers", 0), ("sums", 0), ("list", 0)]),
                (2, &[("numbers", 1), ("sums", 1)]),
            ]);
            let mut master = Master::start(plan).await;
            let job = Arc::new(Adding {
                isolated: isolated.iter().map(|name| name.to_string()).collect(),
                ..Adding::new(total)
            });
            let worker = |container| {
                let mut start = isolating(start(container, 1, &master.address), isolated);
                let all = total.to_string();
                start.settings.insert("test.adding".into(), all);
                let job: Arc<dyn Job> = Arc::<Adding>::clone(&job);
                thread(start, job)
            };
            let workers = [worker(1), worker(2)];
            master.start_reading().await;
            master.all_ended().await;
            master.say_farewell().await;
            for worker in workers {
                worker.join().unwrap().unwrap();
            }
            job.results()
        });
        assert_eq!(results, expected, "{isolated:?}");
    }
}

#[test]
fn the_end_of_an_isolated_sink_is_heard() {
    runtime().block_on(async {
        let plan = plan(&[(1, &[("numbers", 0), ("sums", 0), ("list", 0)])]);
        let mut master = Master::start(plan).await;
        let job: Arc<dyn Job> = Arc::new(Adding {
            isolated: vec!["list".into()],
            ..Adding::new(1_000)
        });
        let mut start = isolating(start(1, 1, &master.address), &["list"]);
        start.settings.insert("test.adding".into(), "1000".into());
        let worker = thread(start, job);
        master.start_reading().await;
        master.all_ended().await;
        master.say_farewell().await;
        worker.join().unwrap().unwrap();
    });
}

#[test]
fn the_process_of_an_instance_does_not_outlive_a_container_that_is_killed() {
    runtime().block_on(async {
        let plan = plan(&[(1, &[("list", 0)]), (2, &[("ticks", 0), ("relay", 0)])]);
        let mut master = Master::start(plan).await;
        let job = Arc::new(Relaying {
            isolated: vec!["relay".into()],
            ..Relaying::default()
        });
        let address = master.address.clone();
        let here: Arc<dyn Job> = Arc::<Relaying>::clone(&job);
        let here = thread(isolating(start(1, 1, &address), &["relay"]), here);
        let mut there = process(&isolating(start(2, 1, &address), &["relay"]));
        master.start_reading().await;
        until(|| job.count() > 100).await;
        let relay = relays(&job)[0];
        assert!(relay != there.id() && is_there(relay));
        there.kill();
        until(|| !is_there(relay)).await;
        master.say_farewell().await;
        here.join().unwrap().unwrap();
    });
}

#[test]
fn an_error_of_an_isolated_instance_is_told_in_its_own_words() {
    runtime().block_on(async {
        let plan = plan(&[(1, &[("ticks", 0), ("relay", 0), ("list", 0)])]);
        let mut master = Master::start(plan).await;
        let job: Arc<dyn Job> = Arc::new(Relaying {
            first: Relaying::POISON - 50,
            isolated: vec!["relay".into()],
            ..Relaying::default()
        });
        let worker = thread(isolating(start(1, 1, &master.address), &["relay"]), job);
        master.start_reading().await;
        master
            .listen_until(|master| !master.problems.is_empty())
            .await;
        let problem = &master.problems[0];
        assert!(problem.contains("chokes"), "{problem}");
        let error = worker.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("chokes"), "{error}");
    });
}
