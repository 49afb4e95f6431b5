//! Workers that are refused by their leader.

use std::fs;

use ardea_coordination::control::PROTOCOL;
use ardea_network::rpc::VERSION;

use crate::arena::Arena;
use crate::deaths::NumbersJob;
use crate::processes::kill;
use crate::unexpected_workers::{FILE, UnexpectedWorker};

pub fn a_worker_of_another_version_or_cluster_is_turned_away_and_users_are_told_why() {
    let job = NumbersJob::begun(1_000);
    let arena = &job.arena;
    job.until_more();
    let with_spout = job.container_of("numbers#0");
    let container = (1..=3).find(|container| *container != with_spout).unwrap();
    let others = || {
        let mut workers = arena.workers("numbers");
        workers.retain(|(id, _)| *id != container);
        workers
    };
    let before = others();
    let protocol = format!("version {} of the protocol", VERSION + 1);
    let messages = format!("its master version {PROTOCOL}");
    for disguise in UnexpectedWorker::ALL {
        fs::write(job.data.join(FILE), disguise.to_string()).unwrap();
        kill(job.worker(container).unwrap());
        let says = match disguise {
            UnexpectedWorker::Protocol => ["ARD-605", &*protocol],
            UnexpectedWorker::Messages => ["ARD-605", &*messages],
            UnexpectedWorker::Cluster => ["ARD-606", "\"elsewhere\""],
        };
        arena.until(&format!("why it is turned away: {disguise}"), || {
            let listed = arena.json("list");
            let told = listed[0]["last_problem"]["message"].as_str();
            told.is_some_and(|told| says.iter().all(|word| told.contains(word)))
        });
        assert_eq!(others(), before);
        fs::remove_file(job.data.join(FILE)).unwrap();
        arena.until_phase("numbers", "running");
        job.until_more();
    }
    assert_eq!(others(), before);
    a_job_of_such_workers_is_told_by_submit(arena);
    assert_eq!(others(), before);
    job.end();
}

fn a_job_of_such_workers_is_told_by_submit(arena: &Arena) {
    let data = arena.path().join("elsewhere");
    fs::create_dir(&data).unwrap();
    fs::write(data.join(FILE), UnexpectedWorker::Cluster.to_string()).unwrap();
    let output = arena.try_numbers("--name elsewhere", &data.display().to_string());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{told}");
    assert!(
        told.contains("ARD-606") && told.contains("\"elsewhere\""),
        "{told}"
    );
    arena.succeed("kill elsewhere --yes");
    assert_eq!(arena.workers("elsewhere"), []);
}
